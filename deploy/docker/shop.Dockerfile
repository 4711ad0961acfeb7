# An application's workers on top of it: its own requirements, then its code.
#   docker build -f deploy/docker/shop.Dockerfile -t shop-worker deploy/docker
FROM partbox:0.1.0
WORKDIR /app
COPY shop.py ./
CMD ["worker", "shop:outbox"]
