"""What a run does about losses and gradients out of the ordinary. No torch in here."""

from typing import Literal

from preprocessing.spec import require, spec

Policy = Literal["off", "warn", "fail", "skip", "rollback"]


@spec
class LossSpikes:
    """What is done about spikes, and about gradients that are not finite.

    A spike is a loss or a gradient norm more than `threshold_sigmas` deviations above the mean of the last
    `window_steps` updates (OLMo-core's StabilityMonitor: 6 of 128); before there are so many, none is. An update whose
    gradient is not finite is never made, whatever the policy; it is no spike where the loss is ordinary and fp16's
    scale of it adapts, as that overflows now and then. What a run has skipped it can be told from the start
    (`cluster.skip_steps`), and learns the same, bit for bit.
    """

    # off: nothing is looked at, and ten gradients in a row that are not finite end the run. warn: spikes are said.
    # fail: a spike or a gradient that is not finite ends the run. skip: where the loss is a spike, the update is not
    # made; a norm is known behind its update only, and is said. rollback: back to the newest checkpoint before a spike,
    # and on without its batches
    policy: Policy = "off"
    threshold_sigmas: float = 6.0  # deviations above the mean
    window_steps: int = 128  # updates that mean and deviation are of
    max_skips: int = (
        10  # batches skipped among the last `window_steps` steps, of skip and rollback; with one more the run fails
    )
    skip_before: int = 1  # batches before a spike that a rollback skips with it: their updates may be the cause

    def __post_init__(self) -> None:
        require(
            self.threshold_sigmas > 0,
            "loss_spikes.threshold_sigmas",
            self.threshold_sigmas,
            "a number of deviations above 0",
        )
        require(self.window_steps >= 2, "loss_spikes.window_steps", self.window_steps, "a number of updates from 2 up")
        require(self.max_skips >= 1, "loss_spikes.max_skips", self.max_skips, "a number of batches from 1 up")
        require(self.skip_before >= 0, "loss_spikes.skip_before", self.skip_before, "a number of batches from 0 up")
