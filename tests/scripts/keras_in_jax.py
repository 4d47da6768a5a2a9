"""A function that JAX compiles and that updates weights by a Keras optimizer."""

import jax
import keras

optimizer = keras.optimizers.SGD()
optimizer.build([keras.Variable([1.0])])
train = jax.jit(lambda state, weights: optimizer.stateless_apply(state, weights, weights))
for _ in range(9):
    weights, state = train([variable.value for variable in optimizer.variables], [jax.numpy.ones(1)])
