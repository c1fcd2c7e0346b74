package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/hashing"
	"github.com/embedonce/embedonce/embed/openai"
)

// defaultModel is the cheapest of OpenAI's.
const defaultModel = "text-embedding-3-small"

// settings are what the flags and the environment say.
type settings struct {
	in         string // "" is the documentation of Go's standard library
	provider   string
	baseURL    string // "" is OpenAI's own
	model      string
	dimensions *int // nil is the model's own
	cache      string
	query      string // "" asks nothing
}

// parseSettings reads the flags. For -h it prints them to help and returns
// flag.ErrHelp.
func parseSettings(args []string, help io.Writer) (*settings, error) {
	s := &settings{}
	set := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	set.SetOutput(io.Discard) // run prints the error
	set.StringVar(&s.in, "in", "", "`DIR|FILE`: embed the paragraphs of a text or markdown file, or of all below DIR,\n"+
		`or a .jsonl file with {"id": "...", "text": "..."} on each line; without it, the documentation of Go's standard library`)
	set.StringVar(&s.provider, "provider", "hashing", "`hashing|openai`: who makes the vectors; hashing is offline and free, and lexical, not semantic;\n"+
		"openai is any OpenAI-compatible API, with the key in OPENAI_API_KEY")
	set.StringVar(&s.baseURL, "base-url", "", "`URL` of an OpenAI-compatible API (default OPENAI_BASE_URL, else OpenAI's own)")
	set.StringVar(&s.model, "model", "", "`NAME` of the model, with -provider openai (default "+defaultModel+")")
	set.Func("dimensions", "`N`, the length of the vectors (default the model's own)", func(value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return errors.New("allowed are whole numbers from 1")
		}
		s.dimensions = &n
		return nil
	})
	set.StringVar(&s.cache, "cache", "", "`FILE` that keeps the vectors (default quickstart.db in the user's cache directory)")
	set.StringVar(&s.query, "q", "", "`QUERY`: show the five passages closest to it")

	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			set.SetOutput(help)
			set.Usage()
		}
		return nil, err
	}
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	set.Visit(func(f *flag.Flag) {
		if f.Name != "dimensions" && strings.TrimSpace(f.Value.String()) == "" {
			problem("-%s is empty; leave the flag out, or say what is meant", f.Name)
		}
	})
	if set.NArg() > 0 {
		problem("unexpected argument %q; what to embed is said with -in", set.Arg(0))
	}
	switch s.provider {
	case "openai":
		s.model = cmp.Or(s.model, defaultModel)
	case "hashing":
		if s.baseURL != "" || s.model != "" {
			problem("-base-url and -model are for -provider openai")
		}
	default:
		problem("-provider is %q; allowed are hashing and openai", s.provider)
	}
	if s.cache == "" {
		file, err := defaultCache()
		if err != nil {
			problem("%w; say with -cache where to keep the vectors", err)
		}
		s.cache = file
	}
	return s, errors.Join(problems...)
}

// defaultCache returns the cache file in the user's cache directory, and makes
// that directory.
func defaultCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "embedonce")
	return filepath.Join(dir, "quickstart.db"), os.MkdirAll(dir, 0o700)
}

// newProvider returns what makes the vectors.
func (s *settings) newProvider() embed.Provider {
	if s.provider == "openai" {
		// It reads OPENAI_API_KEY, and OPENAI_BASE_URL where baseURL is "".
		return openai.New(s.model, &openai.Options{BaseURL: s.baseURL, Dimensions: s.dimensions})
	}
	opts := &hashing.Options{}
	if s.dimensions != nil {
		opts.Dimensions = *s.dimensions
	}
	return hashing.New(opts)
}

// providerNote says who makes the vectors, and what they can't do.
func (s *settings) providerNote() string {
	if s.provider == "openai" {
		return "openai, model " + s.model
	}
	return "hashing: offline, and lexical, not semantic: it compares words and parts of words, not meanings"
}

// source says in words where the passages come from.
func (s *settings) source() string {
	if s.in == "" {
		return "the documentation of Go's standard library"
	}
	return s.in
}
