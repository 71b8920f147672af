# recfusion as a service on a CPU:
#   docker build -t recfusion .
#   docker run --read-only --tmpfs /tmp -p 8000:8000 -v ./shop:/models/shop:ro -v events:/events \
#     -e READ_KEY -e ADMIN_KEY recfusion /models/shop
FROM python:3.12-slim AS build
WORKDIR /build
COPY . .
RUN python -m venv /opt/recfusion \
 && /opt/recfusion/bin/pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
    -c constraints.txt '.[serve]'

FROM python:3.12-slim
COPY --from=build /opt/recfusion /opt/recfusion
RUN useradd --uid 10001 --no-create-home recfusion && mkdir /events && chown recfusion /events
USER 10001
ENV PATH=/opt/recfusion/bin:$PATH PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
VOLUME /events
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/ready', timeout=3)"]
ENTRYPOINT ["recfusion", "serve", "--host", "0.0.0.0", "--events", "/events/events.sqlite", \
            "--api-key-env", "READ_KEY", "--admin-key-env", "ADMIN_KEY"]
