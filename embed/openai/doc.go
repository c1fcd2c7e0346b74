// Package openai is the provider for embedding APIs that are compatible with
// OpenAI's: OpenAI itself, Azure OpenAI, Voyage, Gemini, Mistral, Ollama, vLLM,
// text-embeddings-inference, llama.cpp and many gateways. It needs net/http and
// nothing of OpenAI's own library, which brings the Azure and AWS SDKs with it.
//
//	provider := openai.New("text-embedding-3-small", nil) // the key is in OPENAI_API_KEY
//	client, err := embed.New(provider, &embed.Options{Cache: cache})
//
// # Services
//
// Options.BaseURL chooses the service; the request is a POST to it with
// "/embeddings" added:
//
//	OpenAI   https://api.openai.com/v1, the default
//	Azure    https://RESOURCE.openai.azure.com/openai/v1, with the name of the
//	         deployment as the model and no APIVersion; or, in the older way,
//	         https://RESOURCE.openai.azure.com/openai/deployments/DEPLOYMENT
//	         with an APIVersion such as "2024-10-21"
//	Voyage   https://api.voyageai.com/v1, with Role "query" or "document"
//	Gemini   https://generativelanguage.googleapis.com/v1beta/openai
//	Ollama   http://localhost:11434/v1
//
// Azure's v1 API (https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle)
// takes a key as a bearer token, as OpenAI does. With APIVersion, which it may have
// too ("preview"), the key is sent as "api-key". For tokens of Microsoft Entra ID,
// formerly Azure AD, and for other middleware, give Options.HTTPClient a
// RoundTripper of your own: see the examples.
//
// # Identity
//
// The base URL, without credentials and default port, is part of each cache key: the
// same model name elsewhere may be another model. Of a query, which may choose the
// model too, and may be a secret, it is the digest. Options.Name takes
// its place. A base URL that means another machine elsewhere (a loopback, private
// or link-local address, a name without a dot or under .local, .localdomain,
// .localhost, .internal, .lan, .home.arpa or .svc) makes embed.New ask for a Name if the cache is
// shared by machines.
package openai
