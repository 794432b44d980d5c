"""What the pages of reproduced papers say in words; numbers come from the recorded results."""

PAPERS = {
    "ibnn": (
        "Implicit Bayesian neural networks, run again",
        """
Trinh, Kaski & Heinonen, *Scalable Bayesian neural networks by layer-wise input augmentation* (2020, arXiv:2010.13498),
table by table and figure by figure. Everything on this page was run with the command that stands under it, and the
page is generated from what was recorded. "Published" are the paper's means and deviations of five seeds.

**What was reproduced.** Where the paper's text and its code differ, the code made the published numbers, and the code's
way is taken: the S samples of a datum come from different components (Algorithm 1 draws them from one), VGG-16 sees
images with ImageNet's mean and deviation, and all components share the statistics of batch normalisation. Its faults
are not taken over: MC-dropout is scored with batch normalisation in evaluation mode, and in figure 1 both methods also
meet the same data and the same weight of the divergence. On a GPU the networks are trained in bfloat16.

**The sizes.** *full* is the published setting. *small* is what two processor cores do in minutes, on real data: in
tables 3 to 6 a LeNet of twice the usual width on a fifth of CIFAR, with the recipe that the paper has for VGG-16, so
that numbers cannot be compared with the published ones, but conclusions can.

**The entropic objective** is that of the paper's successor (Trinh et al. 2022): iBNN with `kl="bound"` and γ > 0, at
the same rows a step and the same epochs as iBNN-16.
""",
    ),
}
