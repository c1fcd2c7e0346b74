package openai

import (
	"net/http"

	"github.com/embedonce/embedonce/embed"
)

// Options configure a Provider; nil and the zero value are OpenAI's own API with
// the key of the environment. New copies what it needs of them.
type Options struct {
	// BaseURL is the API's address, to which "/embeddings" is added. "" is the
	// environment's OPENAI_BASE_URL, or else https://api.openai.com/v1. See the
	// package's overview for other services.
	BaseURL string

	// APIKey is sent as a bearer token, or as Azure's "api-key" where APIVersion is
	// set. "" is the environment's OPENAI_API_KEY, whatever the host, as with
	// OpenAI's own libraries: set APIKey where that key must not go there.
	APIKey string

	// Organization and Project are sent as OpenAI-Organization and OpenAI-Project.
	Organization, Project string

	// HTTPClient sends the requests. nil is http.DefaultTransport without a
	// time-out: the Client of package embed bounds each request. Redirects are not
	// followed, because net/http would carry keys and texts to another host; a
	// client that has a CheckRedirect decides for itself.
	HTTPClient *http.Client

	// Header is added to each request and replaces what would be sent under the
	// same name. It isn't part of a key: where a header chooses the model, set Name
	// too.
	Header http.Header

	// APIVersion, such as "2024-10-21", selects Azure's way: the key as "api-key"
	// and the version in the query. See the package's overview.
	APIVersion string

	// Name takes the place of the base URL in the identity that keys have. Set it
	// where the address is not the model's lasting name: one model behind several
	// addresses, or "localhost" with a cache that machines share. Vectors of
	// providers with one Name, model and parameters are taken for the same.
	Name string

	// Dimensions is the vector length to ask for; nil asks for none. What
	// OpenAI's models take is checked; for others any value but a negative passes.
	Dimensions *int
	// DimensionsField is the request's name for Dimensions. "" is
	// "output_dimension" for models whose name begins with "voyage-", and
	// "dimensions" for all others; set it for a Voyage model under another name.
	DimensionsField string

	// Role is what the texts are for, where the model tells that apart: "query" or
	// "document" for Voyage. It is sent under RoleField and part of each key, so
	// that a query and a document of the same words have vectors of their own.
	Role string
	// RoleField is the request's name for Role. "" is "input_type" for models
	// whose name begins with "voyage-"; for others it must be set with Role.
	RoleField string

	// Prefix is put before each text by the Client, for models that are told so
	// what a text is for, such as "query: ". It counts towards token limits.
	Prefix string

	// Extra has every other request parameter by its name in the request. All are
	// part of the key but "user", which can't change a vector. Names that an option
	// stands for are refused, and so are output types that are no floats.
	Extra map[string]any

	// EncodingFormat is how vectors are asked for: "base64", "float", or "none" to
	// not say. "" is "base64", a quarter of the bytes of numbers, but "float" for
	// Gemini. An answer is understood in either form, whatever was asked for; this
	// is for servers that refuse the field.
	EncodingFormat string

	// Limits replace what one request may hold. nil is what the provider's
	// documentation says, by base URL and model: 2,048 texts and 300,000 tokens for
	// OpenAI and Azure, 8,192 tokens a text; 1,000 texts for Voyage with the token
	// limits of its models; 100 texts for Gemini; 10 for DashScope. An unknown
	// server gets 32 texts and 1 MB, which is what text-embeddings-inference takes
	// when it is started without options; raise it where yours takes more.
	Limits *embed.Limits

	// DollarsPerMillion replaces the price of a million tokens; 0 is the list price
	// where the model's name is known.
	DollarsPerMillion float64

	// Tokenizer replaces the one that the model's name tells: CL100K for OpenAI's
	// models, and otherwise embed.Estimate.
	Tokenizer embed.Tokenizer

	// MaxAnswerBytes bounds what is read of one answer; 0 is 256 MiB, more than
	// 2,048 vectors of 3,072 numbers take in decimal.
	MaxAnswerBytes int64
}
