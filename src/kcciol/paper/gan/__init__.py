"""Images generated of classes learned one after another: the paper's conditional Wasserstein GAN on MNIST.

What the paper leaves open, and what is done here:

- theta and W: W is the last layer of the generator and of the critic, as W is linear in classification, and what a
  label adds to the first layer of each; theta the rest. Were the labels theta's, those of novel classes would never
  learn anything, and the generator could not tell novel classes apart: each would be learned over the one before.
- A label counts for ten inputs (`gan.strength`): as one of 110 it is nearly drowned by the noise.
- The critic must be 1-Lipschitz: by a penalty on its gradient between real and generated images (Gulrajani et al.
  2017), in l_meta. The inner loop moves little of the critic and has none.
- The generator ends in a tanh; pixels are scaled to -1..1. Both networks read the label as a one-hot vector.
- Each network follows its own loss: the critic D(generated) - D(real), the generator -D(generated). The constraint is
  on both gradients, and is differentiated through both networks.
- The meta-gradient is of first order: the updates of the inner loop are constants.
"""
