"""All ablation tables by name. The file of a paper defines its tables, and TABLES lists them."""

from collections.abc import Mapping
from typing import Final

from orchestration.config import find_nearest
from orchestration.reports.ablations.ablation import Ablation
from orchestration.reports.ablations.albert import ALBERT_SHARING, ALBERT_SP
from orchestration.reports.ablations.electra import ELECTRA_COMPUTE
from orchestration.reports.ablations.miniatures import SIZE_LADDER
from orchestration.reports.ablations.roberta import ADAM_EPS, ROBERTA_FORMATS
from orchestration.reports.ablations.scaling import SCALING, ScalingLadder
from orchestration.reports.ablations.spanbert import SPANBERT_MASKING, SPANBERT_OBJECTIVES
from preprocessing.errors import BadInput

TABLES: Final[Mapping[str, Ablation]] = {
    table.name: table
    for table in (
        ALBERT_SP,
        SPANBERT_MASKING,
        SPANBERT_OBJECTIVES,
        SIZE_LADDER,
        ROBERTA_FORMATS,
        ELECTRA_COMPUTE,
        ALBERT_SHARING,
        ADAM_EPS,
        SCALING,
    )
}


def ablation_from_name(name: str) -> Ablation:
    """The table of this name; BadInput if there is no such table."""
    if name in TABLES:
        return TABLES[name]
    close = find_nearest(name, list(TABLES))
    hint = f"; did you mean {close}?" if close else "; choose one of them"
    raise BadInput(f"invalid table: got {name!r}, expected one of {', '.join(TABLES)}{hint}")


def with_recipe(table: Ablation, recipe: str) -> ScalingLadder:
    """A ladder with the sizes of another recipe; BadInput if the table is none."""
    if isinstance(table, ScalingLadder):
        return table.with_recipe(recipe)
    raise BadInput(
        f"invalid --recipe: got {recipe} with {table.name}, expected it with {SCALING.name} only, because the rows of "
        "the other tables are recipes; remove it"
    )
