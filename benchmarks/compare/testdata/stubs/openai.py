"""Stands in for openai."""


class OpenAI:
    def __init__(self, base_url, api_key):
        pass


class AsyncOpenAI(OpenAI):
    pass
