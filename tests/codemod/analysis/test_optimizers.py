"""Which calls make an optimizer, a scheduler or a model, in the forms that scripts choose them by."""

from __future__ import annotations

import pytest

from accelerate_migrate.analysis.atoms import Role
from support.facts import training_of

HEAD = """\
import torch
from torch import nn, optim
from torch.optim import SGD, Adam
net = nn.Linear(8, 3)
"""
TAIL = """
optimizer.zero_grad()
net(torch.ones(8)).mean().backward()
optimizer.step()
"""
OPTIMIZERS = {
    "by name": "optimizer = getattr(torch.optim, args.optimizer)(net.parameters(), lr=0.1)",
    "by constant name": 'optimizer = getattr(optim, "SGD")(net.parameters(), lr=0.1)',
    "from the module's names": "optimizer = optim.__dict__[args.optimizer](net.parameters(), lr=0.1)",
    "from a registry": 'optimizer = {"sgd": SGD, "adam": Adam}[args.optimizer](net.parameters(), lr=0.1)',
    "from a registry by get": "known = dict(sgd=SGD, adam=Adam)\noptimizer = known.get(args.o)(net.parameters())",
    "by a factory": (
        "def get_optimizer(args, parameters):\n"
        '    if args.optimizer == "sgd":\n'
        "        return SGD(parameters, lr=0.1)\n"
        '    elif args.optimizer == "adam":\n'
        "        return Adam(parameters)\n"
        "    else:\n"
        "        raise ValueError(args.optimizer)\n"
        "optimizer = get_optimizer(args, net.parameters())"
    ),
    "of a class of the program": (
        "class Lookahead(torch.optim.Optimizer):\n    pass\noptimizer = Lookahead(net.parameters(), {})"
    ),
    "of a known library": "from lion_pytorch import Lion\noptimizer = Lion(net.parameters())",
    "by a library's factory": "from timm.optim import create_optimizer\noptimizer = create_optimizer(args, net)",
    "from a file that is not there": "from mine import Sharp\noptimizer = Sharp(net.parameters(), lr=0.1)",
    "in parameter groups": (
        "groups = [{'params': [p for n, p in net.named_parameters() if 'bias' not in n]}]\n"
        "optimizer = torch.optim.AdamW(groups, lr=0.1)"
    ),
    "in groups made in a loop": (
        "groups = []\n"
        "for name, weight in dict(net.named_parameters()).items():\n"
        "    groups += [{'params': [weight], 'lr': 0.2 if 'bias' in name else 0.1}]\n"
        "optimizer = torch.optim.SGD(groups)"
    ),
    "in lists filled from its modules": (
        "plain, biases = [], []\n"
        "for name, module in net.named_modules():\n"
        "    if hasattr(module, 'bias'):\n"
        "        biases.append(module.bias)\n"
        "        plain.append(module.weight)\n"
        "optimizer = Adam(plain)\n"
        "optimizer.add_param_group({'params': biases})"
    ),
    "in lists held by a list": (
        "groups = [], []\n"
        "for module in net.children():\n"
        "    for weight in module.parameters():\n"
        "        groups[1].append(weight)\n"
        "optimizer = Adam(groups[1])"
    ),
    "in a list held by an object": (
        "class Held:\n    def __init__(self):\n        self.weights = []\n"
        "held = Held()\n"
        "held.weights.append(net.weight)\n"
        "optimizer = Adam(held.weights)"
    ),
    "through partial": (
        "from functools import partial\nmake = partial(Adam, lr=0.1)\noptimizer = make(net.parameters())"
    ),
}


@pytest.mark.parametrize("made", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_optimizer_and_its_model_are_known(made: str) -> None:
    training = training_of(HEAD + made + TAIL)
    assert training.optimizers
    assert [site.line for site in training.models] == [4]
    (step,) = training.steps
    assert training.receiver(step).only_role(Role.OPTIMIZER)


MODELS = {
    "by name": "from torchvision import models\nnet = getattr(models, args.arch)(num_classes=3)",
    "from the module's names": "from torchvision import models\nnet = models.__dict__[args.arch]()",
    "from a file that is not there": "import models\nnet = models.__dict__[args.arch]()",
    "from a registry": 'net = {"small": nn.Linear, "large": nn.Bilinear}[args.arch](8, 3)',
    "of transformers": (
        "from transformers import AutoModelForSequenceClassification\n"
        "net = AutoModelForSequenceClassification.from_pretrained(args.arch)"
    ),
    "by its configuration": "from transformers import BertModel\nnet = BertModel(config)",
}


@pytest.mark.parametrize("made", MODELS.values(), ids=MODELS)
def test_a_model_is_known(made: str) -> None:
    training = training_of(HEAD + made + "\noptimizer = SGD(net.parameters(), lr=0.1)\n" + TAIL)
    assert training.models
    (step,) = training.steps
    owners = [training.store.details[site].owners for site in training.receiver(step).sites()]
    assert all(one is not None and one.only_role(Role.MODEL) for one in owners)


SCHEDULERS = {
    "by name": "scheduler = getattr(optim.lr_scheduler, args.schedule)(optimizer)",
    "of transformers": (
        "from transformers.optimization import get_linear_schedule_with_warmup\n"
        "scheduler = get_linear_schedule_with_warmup(optimizer, 10, 100)"
    ),
}


@pytest.mark.parametrize("made", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_scheduler_is_known(made: str) -> None:
    training = training_of(HEAD + "optimizer = SGD(net.parameters(), lr=0.1)\n" + made + TAIL + "scheduler.step()\n")
    assert len(training.scheduler_steps) == 1
