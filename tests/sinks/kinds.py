"""Every kind of broker that there is on this machine."""

import os

from broker_hook import Hook
from broker_nats import Nats
from broker_rabbit import Rabbit
from broker_redis import Redis
from broker_sqs import Sqs
from brokers import Broker
from kafkas import BOOTSTRAP, MockKafka, RealKafka

BROKERS: dict[str, type[Broker]] = {
    "kafka": RealKafka if BOOTSTRAP in os.environ else MockKafka,
    "rabbitmq": Rabbit,
    "nats": Nats,
    "redis": Redis,
    "webhook": Hook,
    "sqs": Sqs,
}
