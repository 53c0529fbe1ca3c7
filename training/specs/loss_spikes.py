"""Settings for loss spikes and non-finite gradients. This module does not import torch."""

from typing import Literal

from preprocessing.spec import key, require, spec

Policy = Literal["off", "warn", "fail", "skip", "rollback"]


@spec
class LossSpikes:
    """Detection of loss spikes and non-finite gradients, and the response to them.

    A spike is a loss or a gradient norm more than `threshold_sigmas` standard deviations above the mean of the last
    `window_steps` updates (OLMo-core's StabilityMonitor: 6 of 128). Before `window_steps` updates, no value is a spike.
    An update with a non-finite gradient is always skipped. It is not a spike if the loss is normal and the loss scale
    of fp16 overflowed, which happens occasionally. A later run with the same steps in `cluster.skip_steps` gets the
    same weights, bit for bit.
    """

    # `off`: no detection; ten successive non-finite gradients end the run. `warn`: spikes are reported. `fail`: a spike
    # or a non-finite gradient ends the run. `skip`: the update of a loss spike is skipped; a spike of the gradient
    # norm is known only after its update, and is reported. `rollback`: training resumes from the newest checkpoint
    # before the spike and skips its batches.
    policy: Policy = key(
        default="off",
        doc="Response to a spike: none, report it, end the run, skip the update, or return to a checkpoint.",
    )
    threshold_sigmas: float = key(
        default=6.0, doc="Number of standard deviations above the mean beyond which a value is a spike."
    )
    window_steps: int = key(
        default=128, doc="Number of updates in the running mean and standard deviation; at least 2."
    )
    max_skips: int = key(
        default=10, doc="Maximum skipped batches within window_steps, for skip and rollback; beyond it the run fails."
    )
    # Their updates may be the cause.
    skip_before: int = key(default=1, doc="Number of batches before a spike that a rollback also skips.")

    def __post_init__(self) -> None:
        require(
            self.threshold_sigmas > 0,
            "loss_spikes.threshold_sigmas",
            self.threshold_sigmas,
            "a number of deviations above 0",
        )
        require(self.window_steps >= 2, "loss_spikes.window_steps", self.window_steps, "at least 2 updates")
        require(self.max_skips >= 1, "loss_spikes.max_skips", self.max_skips, "at least 1 batch")
        require(self.skip_before >= 0, "loss_spikes.skip_before", self.skip_before, "at least 0 batches")
