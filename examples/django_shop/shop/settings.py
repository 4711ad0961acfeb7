from psycopg.conninfo import conninfo_to_dict

from partbox import Outbox

database = conninfo_to_dict(Outbox().dsn)  # that of partbox.toml, or of PARTBOX_DSN

DEBUG = True
SECRET_KEY = "of an example"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["shop"]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
ROOT_URLCONF = "shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": database["dbname"],
        "USER": database["user"],
        "PASSWORD": database.get("password", ""),
        "HOST": database["host"],
        "PORT": database.get("port", ""),
        "ATOMIC_REQUESTS": True,
        "CONN_MAX_AGE": 60,
    }
}
