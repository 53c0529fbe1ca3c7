"""The blends of a mixture that follow from the phases of a run."""

from collections.abc import Sequence

from preprocessing.blends import Blend, weights_of
from training.specs.engine_settings import Phase


def list_blends(names: Sequence[str], phases: Sequence[Phase], length: int) -> tuple[Blend, ...]:
    """The weights of the groups at the positions of each phase with sequences of `length` tokens; () if none sets them.

    `names` are the groups of the corpus in the order of the store. A phase without a mixture has the weights of the
    corpus. Raises BadInput for groups that the corpus does not have.

    >>> first, last = Phase(seq_length=8, global_batch_size=4, steps=5), {"wiki": 1.0}
    >>> list_blends(["web", "wiki"], [first, Phase(seq_length=8, global_batch_size=4, steps=2, mixture=last)], 8)
    (Blend(start=0, weight_by_group=()), Blend(start=20, weight_by_group=(0.0, 1.0)))
    """
    blends, position = list[Blend](), 0
    for number, phase in enumerate(phases):
        if phase.seq_length == length:
            weights = weights_of(phase.mixture, names, f"phases.{number}.mixture") if phase.mixture else ()
            if not blends or blends[-1].weight_by_group != weights:
                blends.append(Blend(position, weights))
            position += phase.steps * phase.global_batch_size
    return tuple(blends) if any(blend.weight_by_group for blend in blends) else ()
