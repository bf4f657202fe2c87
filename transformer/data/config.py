"""All corpora that ``data`` may be, chosen by their ``name``.

How they are cut into subwords and put into batches is in the modules beside this one.
"""

from typing import Annotated

from pydantic import Field

from transformer.data.corpora.document_config import AnyDocumentCorpus, TextMixtureConfig
from transformer.data.corpora.pair_config import AnyPairCorpus, MixtureConfig

TranslationDataConfig = Annotated[AnyPairCorpus | MixtureConfig, Field(discriminator="name")]
TextDataConfig = Annotated[AnyDocumentCorpus | TextMixtureConfig, Field(discriminator="name")]
DataConfig = Annotated[
    AnyPairCorpus | MixtureConfig | AnyDocumentCorpus | TextMixtureConfig, Field(discriminator="name")
]
