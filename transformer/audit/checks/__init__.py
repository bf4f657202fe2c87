"""The checks, one function each, by theme: from the subject to a measurement, or to the reason why there is none."""
