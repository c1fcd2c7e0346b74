package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/embedonce/embedonce/embed"
)

const (
	defaultBaseURL        = "https://api.openai.com/v1"
	defaultMaxAnswerBytes = 256 << 20
)

// Provider is one model behind an OpenAI-compatible embeddings API. Make one with
// New.
//
// # Concurrency
//
// Any number of goroutines may use it at the same time. It holds no connection
// and needs no closing.
type Provider struct {
	err      error // what is wrong with the configuration
	spec     embed.Spec
	endpoint string
	header   http.Header
	client   *http.Client
	maxBytes int64
	head     []byte   // the request's body up to the texts
	tail     []byte   // and after them
	secrets  []string // what no error may show
}

var _ embed.Provider = (*Provider)(nil)

// New returns a Provider for a model. It always does: Spec, and so embed.New,
// tells what is wrong with the options. nil options are OpenAI's own API with the
// key in the environment's OPENAI_API_KEY.
func New(model string, opts *Options) *Provider {
	b := builder{model: model}
	if opts != nil {
		b.o = *opts
	}
	return b.build()
}

// Spec implements embed.Provider. The error joins one for each problem with the
// options.
func (p *Provider) Spec() (embed.Spec, error) {
	spec := p.spec
	spec.Params = maps.Clone(spec.Params)
	if spec.Dimensions != nil {
		spec.Dimensions = new(*spec.Dimensions)
	}
	return spec, p.err
}

// String names the model and who serves it. It has no key, and keeps the keys out
// of what is printed with %v.
func (p *Provider) String() string {
	return fmt.Sprintf("openai.Provider(%q at %s)", p.spec.Model, p.spec.Identity)
}

// GoString is String, for %#v.
func (p *Provider) GoString() string { return p.String() }

// hide keeps a secret out of errors. What is shorter than any real key, such as
// the "ollama" or "x" that local servers are given, is part of too many words.
func (p *Provider) hide(secrets ...string) {
	for _, secret := range secrets {
		if len(secret) >= 8 {
			p.secrets = append(p.secrets, secret)
		}
	}
}

// builder makes a Provider of options and collects what is wrong with them.
type builder struct {
	o        Options
	model    string
	base     *url.URL
	service  service
	extra    map[string]json.RawMessage
	problems []error
}

func (b *builder) problem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Errorf("openai: "+format, args...))
}

func (b *builder) build() *Provider {
	b.address()
	b.fields()
	b.dimensions()
	b.extras()
	if b.model == "" && b.service == serviceOpenAI {
		b.problem("model is empty: name one, such as \"text-embedding-3-small\"")
	}
	if b.o.DollarsPerMillion < 0 {
		b.problem("DollarsPerMillion is %v: give 0 or more", b.o.DollarsPerMillion)
	}
	if b.o.MaxAnswerBytes < 0 {
		b.problem("MaxAnswerBytes is %d: give 0 for the default, or more", b.o.MaxAnswerBytes)
	}
	p := &Provider{spec: b.spec(), header: b.header(), maxBytes: b.o.MaxAnswerBytes}
	p.head, p.tail = b.body()
	if p.maxBytes == 0 {
		p.maxBytes = defaultMaxAnswerBytes
	}
	if b.base != nil {
		p.endpoint = endpointOf(b.base, b.o.APIVersion).String()
		password, _ := b.base.User.Password()
		p.hide(password)
		p.hide(b.base.User.Username())
		for _, values := range b.base.Query() {
			p.hide(values...)
		}
	}
	p.hide(b.o.APIKey)
	for _, values := range b.o.Header {
		p.hide(values...)
	}
	client := http.Client{}
	if b.o.HTTPClient != nil {
		client = *b.o.HTTPClient
	}
	if client.CheckRedirect == nil {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	p.client = &client
	p.err = errors.Join(b.problems...)
	return p
}

// address resolves base URL and key.
func (b *builder) address() {
	if b.o.BaseURL == "" {
		b.o.BaseURL = os.Getenv("OPENAI_BASE_URL")
	}
	if b.o.BaseURL == "" {
		b.o.BaseURL = defaultBaseURL
	}
	base, err := parseBaseURL(b.o.BaseURL)
	if err != nil {
		b.problem("%w", err)
	} else {
		b.base, b.service = base, serviceOf(hostOf(base))
	}
	if b.o.APIKey == "" {
		b.o.APIKey = os.Getenv("OPENAI_API_KEY")
	}
	switch {
	case b.o.APIKey == "" && b.service == serviceOpenAI && b.o.Header.Get("Authorization") == "":
		b.problem("no API key for %s: set APIKey, or OPENAI_API_KEY in the environment", hostOf(b.base))
	case !isHeaderValue(b.o.APIKey) || strings.TrimSpace(b.o.APIKey) != b.o.APIKey:
		b.problem("APIKey begins or ends with white space, or has a control character: was it read from a file with its last newline?")
	}
	for _, name := range slices.Sorted(maps.Keys(b.o.Header)) {
		if !isToken(name) || slices.ContainsFunc(b.o.Header[name], func(v string) bool { return !isHeaderValue(v) }) {
			b.problem("Header %q can't be sent: its name must be a token and its values without control characters", name)
		}
	}
	for _, f := range []struct{ option, value string }{
		{"Organization", b.o.Organization}, {"Project", b.o.Project}, {"APIVersion", b.o.APIVersion},
	} {
		if !isHeaderValue(f.value) {
			b.problem("%s has a line break or another control character", f.option)
		}
	}
}

// fields resolves the names of the request's fields.
func (b *builder) fields() {
	if b.o.DimensionsField == "" {
		b.o.DimensionsField = "dimensions"
		if isVoyage(b.model) {
			b.o.DimensionsField = "output_dimension"
		}
	}
	if b.o.RoleField == "" && isVoyage(b.model) {
		b.o.RoleField = "input_type"
	}
	if b.o.Role != "" && b.o.RoleField == "" {
		b.problem("Role is set, but not how %q is told about it: set RoleField, or Prefix instead of Role", b.model)
	}
	for _, f := range []struct{ option, name string }{{"DimensionsField", b.o.DimensionsField}, {"RoleField", b.o.RoleField}} {
		if f.name == "model" || f.name == "input" || f.name == "encoding_format" {
			b.problem("%s is %q, which has another meaning in the request", f.option, f.name)
		}
	}
	if b.o.RoleField == b.o.DimensionsField {
		b.problem("RoleField and DimensionsField are both %q", b.o.RoleField)
	}
	if !utf8.ValidString(b.model + b.o.Role + b.o.Prefix) {
		b.problem("model, Role and Prefix must be UTF-8")
	}
	switch b.o.EncodingFormat {
	case "":
		b.o.EncodingFormat = "base64"
		if b.service == serviceGemini {
			b.o.EncodingFormat = "float"
		}
	case "base64", "float", "none":
	default:
		b.problem("EncodingFormat is %q: give \"base64\", \"float\" or \"none\"", b.o.EncodingFormat)
	}
}

func (b *builder) dimensions() {
	if b.o.Dimensions == nil {
		return
	}
	n, known := *b.o.Dimensions, models[b.model]
	switch {
	case known.fixed:
		b.problem("Dimensions is %d: %s takes none, its vectors always have %d", n, b.model, known.dimensions)
	case known.maxDimensions > 0 && (n < 1 || n > known.maxDimensions):
		b.problem("Dimensions is %d: %s takes 1 to %d", n, b.model, known.maxDimensions)
	case n < 0:
		b.problem("Dimensions is %d: give 0 or more, or nil to ask for none", n)
	}
}

// understood has the parameters that choose how numbers are sent, as base64 too, and
// their values that mean little-endian float32. Read as such, what the others ask
// for would be other vectors. Voyage and Mistral have output_dtype, Jina has
// embedding_type, Cohere embedding_types, and vLLM the last two.
var understood = map[string][]string{
	"output_dtype":    {`"float"`},
	"embedding_type":  {`"float"`, `"base64"`},
	"embedding_types": {`["float"]`},
	"embed_dtype":     {`"float32"`},
	"endianness":      {`"little"`},
}

// extras checks Extra and marshals its values, so that later changes to it have
// no effect.
func (b *builder) extras() {
	options := map[string]string{
		"model":             "New's argument model",
		"input":             "the texts of Embed",
		"encoding_format":   "Options.EncodingFormat",
		"dimensions":        "Options.Dimensions and DimensionsField",
		"output_dimension":  "Options.Dimensions and DimensionsField",
		b.o.DimensionsField: "Options.Dimensions",
	}
	if b.o.RoleField != "" {
		options[b.o.RoleField] = "Options.Role"
	}
	b.extra = make(map[string]json.RawMessage, len(b.o.Extra))
	for _, name := range slices.Sorted(maps.Keys(b.o.Extra)) {
		if option, ok := options[name]; ok {
			b.problem("Extra has %q: use %s instead", name, option)
			continue
		}
		var value bytes.Buffer
		encoder := json.NewEncoder(&value)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(b.o.Extra[name]); err != nil {
			// The error of encoding/json can quote the value.
			b.problem("Extra has %q with a value of type %T that JSON can't hold", name, b.o.Extra[name])
			continue
		}
		raw := bytes.TrimSuffix(value.Bytes(), []byte("\n"))
		if allowed := understood[name]; allowed != nil && !slices.Contains(allowed, string(raw)) {
			b.problem("Extra has %q with a value other than %s: only vectors of floats are understood", name, allowed[0])
		}
		b.extra[name] = raw
	}
}

func (b *builder) spec() embed.Spec {
	known := models[b.model]
	s := embed.Spec{
		Identity:          b.o.Name,
		Model:             b.model,
		Role:              b.o.Role,
		Prefix:            b.o.Prefix,
		ModelDimensions:   known.dimensions,
		Limits:            limitsOf(b.service, b.model),
		Tokenizer:         b.o.Tokenizer,
		DollarsPerMillion: b.o.DollarsPerMillion,
	}
	if s.Identity == "" && b.base != nil {
		s.Identity, s.IdentityIsLocal = identityOf(b.base), isLocal(hostOf(b.base))
	}
	if b.o.Dimensions != nil {
		s.Dimensions = new(*b.o.Dimensions)
	}
	param := func(name string, value any) {
		if s.Params == nil {
			s.Params = make(map[string]any)
		}
		s.Params[name] = value
	}
	for name, raw := range b.extra {
		if name != "user" {
			param(name, raw)
		}
	}
	// Under which name the API is told decides whether it understands: a name that
	// it ignores gives other vectors than the right one.
	if b.o.Dimensions != nil && b.o.DimensionsField != "dimensions" {
		param(b.o.DimensionsField, *b.o.Dimensions)
	}
	if b.o.Role != "" {
		param(b.o.RoleField, b.o.Role)
	}
	if l := b.o.Limits; l != nil {
		if l.Items < 0 || l.Tokens < 0 || l.Bytes < 0 || l.TextTokens < 0 {
			b.problem("Limits has a negative number: give 0 for no limit, or more")
		}
		s.Limits = *l
	}
	if s.Tokenizer == nil && (known.cl100k || b.service == serviceOpenAI || b.service == serviceAzure) {
		s.Tokenizer = cl100k{exact: known.cl100k || b.service == serviceAzure}
	}
	if s.DollarsPerMillion == 0 {
		s.DollarsPerMillion = known.price
	}
	return s
}

// header returns the header of each request.
func (b *builder) header() http.Header {
	h := http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"application/json"},
		"User-Agent":   {"embedonce"},
	}
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	if b.o.APIVersion != "" {
		set("api-key", b.o.APIKey)
	} else if b.o.APIKey != "" {
		h.Set("Authorization", "Bearer "+b.o.APIKey)
	}
	set("OpenAI-Organization", b.o.Organization)
	set("OpenAI-Project", b.o.Project)
	for name, values := range b.o.Header {
		h[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	return h
}

// isHeaderValue says whether net/http would send s in a header.
func isHeaderValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// isToken says whether s can be the name of a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
