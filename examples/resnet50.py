"""A custom workload: ResNet-50 of Keras, on synthetic images.

python -m app list parameters examples/resnet50.py:resnet50
python -m app run examples/resnet50.py:resnet50 -s precision=bfloat16 -s xla=true
python -m app run examples/resnet50.py:resnet50 -s gpus=0 -s image_size=64 -s batch_size=8

The model is that of keras.io/api/applications/resnet (He et al. 2015, arxiv.org/abs/1512.03385), with new weights.
"""

import keras
import numpy as np

_CELLS = 8


def resnet50(batch_size: int = 64, image_size: int = 224, classes: int = 1000, seed: int = 1):
    """ResNet-50 of keras.applications classifies synthetic images.

    image_size: Height and width of an image in pixels, at least 32.
    classes: Number of classes.
    """
    model = keras.applications.ResNet50(
        weights=None, input_shape=(image_size, image_size, 3), classes=classes, classifier_activation=None
    )
    patterns = np.random.default_rng(seed).standard_normal((classes, _CELLS, _CELLS, 3), dtype=np.float32)
    cell = np.arange(image_size) * _CELLS // image_size

    def batch(step):
        rng = np.random.default_rng([seed, step])
        kinds = rng.integers(0, classes, batch_size)
        noise = rng.standard_normal((batch_size, image_size, image_size, 3), dtype=np.float32)
        return patterns[kinds][:, cell][:, :, cell] + noise, kinds

    return model, keras.losses.SparseCategoricalCrossentropy(from_logits=True), batch
