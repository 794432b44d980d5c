"""What the pages of reproduced papers say in words; numbers come from the recorded results."""

PAPERS = {
    "ibnn": (
        "Implicit Bayesian neural networks, run again",
        """
Trinh, Kaski & Heinonen, *Scalable Bayesian neural networks by layer-wise input augmentation* (2020, arXiv:2010.13498),
table by table and figure by figure. Everything on this page was run with the command that stands under it, and the
page is generated from what was recorded. "Published" are the paper's means and deviations of five seeds.

**What was reproduced.** Where the paper's text and its code differ, the code made the published numbers, and the code's
way is taken: the S samples of a datum come from different components (Algorithm 1 draws them from one, and so does
figure 1 here), VGG-16 sees images with ImageNet's mean and deviation, and all components share the statistics of batch
normalisation. Its faults are not taken over: MC-dropout is scored with batch normalisation in evaluation mode, and in
figure 1 both methods also meet the same data and the same weight of the divergence. What is not published was chosen:
MC-dropout and BNN-VI have 80 draws and a weight decay of 0.0005; BNN-VI's prior has a deviation of 4/√fan-in, and its
weights start at 0.0015 of that; figures 2 to 4 have the recipe of VGG-16; in table 7 components start at the prior's
deviation, with one sample a datum. On a GPU networks are trained in bfloat16, but for one row.

**The sizes.** *full* is the published setting. *small* is what a processor core does in minutes, on real data: in
tables 3 to 6 a LeNet of twice the usual width on a fifth of CIFAR, with the recipe that the paper has for VGG-16 but 20
epochs, images that are neither shifted nor mirrored, and 2,000 test images. So small a network over-fits so few images
by design: numbers cannot be compared with the published ones, but conclusions can.

**The entropic setting** is that of the paper's successor (Trinh et al. 2022), at the same rows a step and the same
epochs as iBNN-16: the divergence `kl="bound"`, an entropy that counts 1 + γ times, four components, means that start
within 0.05 of each other, noise that starts at its prior, a lower rate of the noise, and a weight decay of 0.0005.

**What held, and what did not**, so far as it was run; the numbers stand in the tables below. At size *full* each row is
one network, so that small differences may be chance.

- *VGG-16 with 16 components reaches the published numbers*: held for error and calibration, which are within the
  published spread or better on both data sets. The likelihood is behind by 3.2 published deviations on CIFAR-10 and 2.2
  on CIFAR-100. In float32 it is behind by 1.5 on CIFAR-10, with an error better than published: bfloat16 may be half of
  the difference, or chance. On CIFAR-100 float32 was not run.
- *It has a lower error, a better likelihood and a better calibration than the network trained by SGD*: held with VGG-16
  on both data sets, by far for the last two.
- *It is ahead of MC-dropout*: held with VGG-16 on both data sets. It did not hold at size *small*: the paper's
  divergence costs nothing for components that drift apart, so its noise may restrain a network that over-fits too
  little. In the entropic setting it is better calibrated than MC-dropout there, with a likelihood about as good and
  more errors.
- *BNN-VI is behind all others*: held with VGG-16 in error and likelihood, and by more than published. Trained on the
  bound, both networks end with equal probabilities for all classes. On CIFAR-10 it had learned something before, at a
  price of nine nats of divergence an image, and lost it as the divergence gained its weight; on CIFAR-100 it hardly
  began. The published rows are over-confident, with a likelihood far worse than that of SGD, as if the divergence had
  hardly counted; their prior is not published. It did not hold at size *small*, where BNN-VI has the best likelihood
  and calibration of all, though nearly no epistemic uncertainty.
- *WideResNet-28x10 on CIFAR-10 comes to 3.34 % of error*: not reached in 18 minutes of training on one H200 (200
  epochs, one sample a datum, batches of 256): 3.70 %, behind the published SGD's 3.53 too, with its likelihood. The
  published 300 epochs with two samples were not run.
- *More components are better, and more than 16 do no harm with larger batches*: held at size *small*, where the
  likelihood improves up to 32 components. That more than 16 do harm with small batches did not show there.
- *A trained network gains within 15 epochs*: held at size *small* in likelihood and calibration; errors fall within
  chance. ImageNet was not run.
- *Uncertainty grows as images are disturbed*: held up to a third of Gaussian noise or a tenth of salt and pepper, for
  every method (with VGG-16; the paper has a WideResNet). Beyond that it did not: all grow surer again. SGD and
  MC-dropout end surer of pure Gaussian noise than they are of images; iBNN about twice as unsure, half of that
  epistemic.
- *BNN-VI loses the fit as networks grow deeper, iBNN does not* (figure 1): held as in the text, in part as in the code.
- *BNN-VI degrades in wide networks* (figure 4): did not show up to 657,000 parameters, where the picture ends.
- *Weights outnumber nodes by up to 3,800* (table 1): held but for LeNet, whose nodes are 207, not 23.
- Beyond the paper, *the entropic setting with γ = 40 is ahead of iBNN-16* in error, likelihood and calibration, on both
  data sets at the same cost. How much of that is γ is not known: the two networks with γ = 0 learned nothing, and at
  size *small* γ = 0 does as well. `posterity.IBNN` has this objective by default, with a smaller γ that suits small
  data; for a network like this take 40. On CIFAR-100 the successor's own γ = 80 has a better error and likelihood
  still, and is less sure than it could be; twice the samples help its likelihood and calibration, and γ = 70 with them
  lies between. γ = 80 was scored on the test images first, 40 then taken by held-out images, and 70 picked between the
  two.

VGG-16 has no normalisation, and with the published rate it does not always begin to learn: such networks are named and
left out, and the next seed is taken.
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
- *The errors on digits*: MAP, the ensemble, MC-dropout and BbH come to the published ones within chance, MAP and BbH to
  about the published areas too. BbB and MNF do not: the bound wants most weights of the large layer at the prior, where
  they say nothing, and the error pays for it. With a tenth of the divergence BbB is ahead of its published error. The
  authors' MNF forgets the divergence of the convolutions; with the library's defaults, which start and hold its noise
  otherwise, MNF is ahead of its published error with all of it.
- *BbH is less sure of outliers than others*: held, as published and with the library's defaults. As published it also
  tells them from digits best, by AUROC. With the defaults, which have a generator of a 360th of the parameters, it is
  the least sure of digits too, and no better a detector than others: AUC measures how unsure a network is, AUROC
  whether it is unsure of the right images.
- *BbH is the least vulnerable to attacks*: held as published among networks trained on plain images, by both attacks.
  The ensemble, which was trained on attacked images, is less vulnerable by far. It did not hold with the library's
  defaults, where BbH is the most vulnerable. The slides' attack moves a pixel by a third of ε where functions
  disagree, and by nearly all of ε against MAP.
- *BbH and MNF take longest*: MNF does not, and the ensemble on attacked images takes nearly as long as BbH. The
  published times hold histograms of all weights at every step.
""",
    ),
}
