package openai

import (
	"strings"

	"github.com/embedonce/embedonce/embed"
)

// Prices, in dollars per million tokens, looked up in November 2026. OpenAI's:
// https://developers.openai.com/api/docs/pricing. Voyage's, as resold at its own
// prices: https://vercel.com/ai-gateway/models. Options.DollarsPerMillion
// overrides them.
const (
	price3Small     = 0.02
	price3Large     = 0.13
	priceAda002     = 0.10
	priceVoyageLite = 0.02 // voyage-4-lite, voyage-3.5-lite
	priceVoyage     = 0.06 // voyage-4, voyage-3.5
	priceVoyageMax  = 0.12 // voyage-4-large, voyage-finance-2, voyage-law-2
	priceVoyageOld  = 0.18 // voyage-3-large, voyage-code-3
)

// Limits of OpenAI's endpoint, for all its models:
// https://developers.openai.com/api/reference/resources/embeddings. Azure's are
// the same: https://learn.microsoft.com/azure/ai-foundry/openai/how-to/embeddings.
const (
	openAIItems      = 2_048
	openAITokens     = 300_000
	openAITextTokens = 8_192
)

// Limits of Voyage's endpoint, for all its models:
// https://docs.voyageai.com/reference/embeddings-api. Those of a model are in the
// table below.
const (
	voyageItems      = 1_000
	voyageTokens     = 120_000 // of the models that it lists with no larger one
	voyageTextTokens = 32_000
)

const (
	// geminiItems is from the API's own refusal, "at most 100 requests can be in
	// one batch".
	geminiItems = 100
	// dashScopeItems is from the API's own refusal, "batch size is invalid, it
	// should not be larger than 10", for text-embedding-v3 and v4.
	dashScopeItems = 10
	// otherItems and otherBytes suit a server that is not known: they are what
	// text-embeddings-inference takes when it is started without options
	// (--max-client-batch-size 32, --payload-limit 2000000, half of it for the
	// escapes of JSON), and the strictest of the common servers' defaults.
	otherItems = 32
	otherBytes = 1_000_000
)

// model is what is known of a model by its name.
type model struct {
	maxDimensions int  // 0: the range is not known
	fixed         bool // takes no dimensions parameter
	dimensions    int  // without the parameter; 0: not known
	textTokens    int
	requestTokens int // Voyage's limit for the model; 0: none of its own
	price         float64
	cl100k        bool
}

// models has the models by their exact names: "my-text-embedding-3-small" can be
// anything.
var models = map[string]model{
	"text-embedding-3-small": {maxDimensions: 1536, dimensions: 1536, textTokens: openAITextTokens, price: price3Small, cl100k: true},
	"text-embedding-3-large": {maxDimensions: 3072, dimensions: 3072, textTokens: openAITextTokens, price: price3Large, cl100k: true},
	"text-embedding-ada-002": {fixed: true, dimensions: 1536, textTokens: openAITextTokens, price: priceAda002, cl100k: true},

	"voyage-4-large":          {textTokens: 32_000, requestTokens: 120_000, price: priceVoyageMax},
	"voyage-4":                {textTokens: 32_000, requestTokens: 320_000, price: priceVoyage},
	"voyage-4-lite":           {textTokens: 32_000, requestTokens: 1_000_000, price: priceVoyageLite},
	"voyage-3.5":              {textTokens: 32_000, requestTokens: 320_000, price: priceVoyage},
	"voyage-3.5-lite":         {textTokens: 32_000, requestTokens: 1_000_000, price: priceVoyageLite},
	"voyage-3-large":          {textTokens: 32_000, requestTokens: 120_000, price: priceVoyageOld},
	"voyage-code-3":           {textTokens: 32_000, requestTokens: 120_000, price: priceVoyageOld},
	"voyage-finance-2":        {textTokens: 32_000, requestTokens: 120_000, price: priceVoyageMax},
	"voyage-law-2":            {textTokens: 16_000, requestTokens: 120_000, price: priceVoyageMax},
	"voyage-code-2":           {textTokens: 16_000, requestTokens: 120_000},
	"voyage-large-2":          {textTokens: 16_000, requestTokens: 120_000},
	"voyage-large-2-instruct": {textTokens: 16_000, requestTokens: 120_000},
	"voyage-2":                {textTokens: 4_000, requestTokens: 320_000},
	"voyage-lite-02-instruct": {textTokens: 4_000, requestTokens: 120_000},

	"gemini-embedding-001": {textTokens: 2_048},
}

// isVoyage says whether a model is one of Voyage's: by the prefix that all of
// them have, so that a name which only contains it is not.
func isVoyage(name string) bool { return strings.HasPrefix(name, "voyage-") }

// service is whose API a host serves, as far as its name tells.
type service int

const (
	serviceOther service = iota
	serviceOpenAI
	serviceAzure // Azure OpenAI, where a model's name is what the user called its deployment
	serviceVoyage
	serviceGemini
	serviceDashScope
)

func serviceOf(host string) service {
	under := func(domains ...string) bool {
		for _, domain := range domains {
			if host == domain || strings.HasSuffix(host, "."+domain) {
				return true
			}
		}
		return false
	}
	switch {
	case under("api.openai.com"): // and its regions, such as eu.api.openai.com
		return serviceOpenAI
	case under("openai.azure.com", "openai.azure.us", "openai.azure.cn"):
		return serviceAzure
	case under("api.voyageai.com", "ai.mongodb.com"):
		return serviceVoyage
	case under("generativelanguage.googleapis.com"):
		return serviceGemini
	case under("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"):
		return serviceDashScope
	}
	return serviceOther
}

// limitsOf returns the limits of a model behind a service.
func limitsOf(s service, name string) embed.Limits {
	known := models[name]
	switch {
	case s == serviceOpenAI || s == serviceAzure:
		return embed.Limits{Items: openAIItems, Tokens: openAITokens, TextTokens: openAITextTokens}
	case s == serviceVoyage || s == serviceOther && known.requestTokens > 0:
		limits := embed.Limits{Items: voyageItems, Tokens: voyageTokens, TextTokens: voyageTextTokens}
		if known.requestTokens > 0 {
			limits.Tokens, limits.TextTokens = known.requestTokens, known.textTokens
		}
		return limits
	case s == serviceGemini:
		return embed.Limits{Items: geminiItems, TextTokens: known.textTokens}
	case s == serviceDashScope:
		return embed.Limits{Items: dashScopeItems, TextTokens: known.textTokens}
	}
	return embed.Limits{Items: otherItems, Bytes: otherBytes, TextTokens: known.textTokens}
}
