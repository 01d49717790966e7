# A ledger that is served: `tightbudget serve`, with pages in a browser and an API over HTTP.
# How to use it: docs/how-to/serve-a-ledger.md.

FROM python:3.13-slim-bookworm AS build
WORKDIR /src
COPY requirements/serve.txt requirements/serve.txt
RUN python -m venv /opt/tightbudget \
    && /opt/tightbudget/bin/python -m pip install --no-cache-dir --no-deps --require-hashes -r requirements/serve.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
# The build backend is in the lock: nothing is asked for that the lock does not name.
RUN /opt/tightbudget/bin/python -m pip install --no-deps --no-build-isolation --no-index .

FROM python:3.13-slim-bookworm
COPY --from=build /opt/tightbudget /opt/tightbudget
# Nobody but this user may open the ledger's file: whoever can, can make tokens.
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin tightbudget \
    && install --directory --owner tightbudget --mode 0700 /data
ENV PATH=/opt/tightbudget/bin:$PATH \
    TIGHTBUDGET_LEDGER=sqlite:////data/budget.db
USER tightbudget
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/api/v1/health', timeout=4)"]
# It makes no ledger: an empty one that takes the place of a lost one would be a budget anew.
ENTRYPOINT ["tightbudget"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
