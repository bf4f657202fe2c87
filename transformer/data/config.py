"""All corpora that ``data`` may be, chosen by their ``name``.

How they are cut into subwords and put into batches is in the modules beside this one.
"""

from typing import Annotated

from pydantic import Field

from transformer.data.document_config import (
    HubTextConfig,
    JsonlTextConfig,
    ParquetTextConfig,
    PlainTextConfig,
    PythonDocsConfig,
    TextMixtureConfig,
)
from transformer.data.pair_config import (
    CsvConfig,
    HubPairsConfig,
    JsonlConfig,
    MixtureConfig,
    ParallelTextConfig,
    ParquetConfig,
    PhrasesConfig,
    TmxConfig,
    TsvConfig,
)

TranslationDataConfig = Annotated[
    PhrasesConfig
    | ParallelTextConfig
    | TsvConfig
    | CsvConfig
    | JsonlConfig
    | ParquetConfig
    | TmxConfig
    | HubPairsConfig
    | MixtureConfig,
    Field(discriminator="name"),
]
TextDataConfig = Annotated[
    PythonDocsConfig | PlainTextConfig | JsonlTextConfig | ParquetTextConfig | HubTextConfig | TextMixtureConfig,
    Field(discriminator="name"),
]
DataConfig = Annotated[
    PhrasesConfig
    | ParallelTextConfig
    | TsvConfig
    | CsvConfig
    | JsonlConfig
    | ParquetConfig
    | TmxConfig
    | HubPairsConfig
    | MixtureConfig
    | PythonDocsConfig
    | PlainTextConfig
    | JsonlTextConfig
    | ParquetTextConfig
    | HubTextConfig
    | TextMixtureConfig,
    Field(discriminator="name"),
]
