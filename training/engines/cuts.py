"""What a worker has of each parameter of its engine's model: for files that are whole whatever the layout was."""

from dataclasses import dataclass

from torch import nn

from training.model import net_of


@dataclass(frozen=True)
class Slice:
    """A parameter, and the part of it that tensor parallelism leaves a worker; ZeRO divides that part further."""

    shape: tuple[int, ...]  # of the whole parameter
    axis: int = 0  # along which it is cut
    pieces: tuple[tuple[int, int], ...] = ()  # first place, and that behind the last one, of each piece; (): all of it


def slices(model: nn.Module) -> dict[str, Slice]:
    """By the name of each parameter what this worker has of it; two workers with the same number of a group that
    shares a net have the same."""
    cuts, found = net_of(model).cuts, dict[str, Slice]()
    for name, parameter in model.named_parameters():
        if name in cuts:
            cut = cuts[name]
            found[name] = Slice(cut.shape, cut.axis, tuple((each.start, each.stop) for each in cut.within))
        else:  # ZeRO-3 leaves an empty tensor, and says what it was
            found[name] = Slice(tuple(getattr(parameter, "ds_shape", parameter.shape)))
    return found
