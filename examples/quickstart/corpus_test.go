package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// writeFiles makes a directory with files of the given names and contents.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	return dir
}

func TestParagraphs(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"empty":             {"", nil},
		"blank":             {" \n\t\n\n", nil},
		"one":               {"a\nb", []string{"a\nb"}},
		"two":               {"a\n\nb\n", []string{"a", "b"}},
		"many blank lines":  {"\n\na\n\n \t\n\nb\n\n\n", []string{"a", "b"}},
		"Windows":           {"a\r\nb\r\n\r\nc\r\n", []string{"a\nb", "c"}},
		"indentation stays": {"a:\n\n\tx := 1\n", []string{"a:", "\tx := 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, paragraphs(test.text))
		})
	}
}

func TestGoDocs(t *testing.T) {
	passages, err := readPassages(t.Context(), "")
	require.NoError(t, err)
	require.Greater(t, len(passages), fewestDocs)
	seen := make(map[string]bool)
	byID := make(map[string]string)
	for _, p := range passages {
		if seen[p.text] || utf8.RuneCountInString(p.text) < shortestDoc || strings.Contains(p.id, "internal/") {
			t.Errorf("%s should not be there: %q", p.id, p.text)
		}
		seen[p.text] = true
		byID[p.id] = p.text
	}
	require.Contains(t, byID["encoding/json.Unmarshal#1"], "parses the JSON-encoded data")
	require.Contains(t, byID["encoding/json#1"], "implements encoding and decoding of JSON")
	require.Contains(t, byID["net/http.Server.ReadTimeout#1"], "maximum duration for reading") // a field
	require.Contains(t, byID["sort.Interface.Less#1"], "reports whether")                      // a method of an interface
}

func TestTooFewGoDocsAreAnError(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"src/a/a.go":                   "// Package a is " + strings.Repeat("long ", 20) + "\npackage a\n",
		"src/a/internal/b/b.go":        "// Package b is " + strings.Repeat("long ", 20) + "\npackage b\n",
		"src/a/a_test.go":              "package a\n",
		"src/a/testdata/broken.go":     "package",
		"src/onlydocs/nothing.txt":     "no Go",
		"src/otherplatform/x_plan9.go": "package otherplatform\n",
	})
	t.Setenv("GOROOT", root)
	passages, err := packageDocs(filepath.Join(root, "src"))
	require.NoError(t, err)
	require.Len(t, passages, 1)
	require.Equal(t, "a#1", passages[0].id)

	_, err = readPassages(t.Context(), "")
	require.ErrorContains(t, err, "has only 1 paragraphs of documentation, at least 3000 are expected; use -in")
}

func TestReadDir(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"b.md":            "# Title\n\nSome text.\n",
		"a/c.TXT":         "one\n\ntwo\n\nthree",
		"a/code.go":       "package a\n",
		".git/config.txt": "hidden\n",
		".hidden.md":      "hidden\n",
		"empty.md":        "\n\n",
	})
	passages, err := readPassages(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, []passage{
		{"a/c.TXT#1", "one"}, {"a/c.TXT#2", "two"}, {"a/c.TXT#3", "three"},
		{"b.md#1", "# Title"}, {"b.md#2", "Some text."},
	}, passages)

	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err == nil { // not everybody may make links on Windows
		linked, err := readPassages(t.Context(), link)
		require.NoError(t, err)
		require.Equal(t, passages, linked)
	}

	one, err := readPassages(t.Context(), filepath.Join(dir, "a", "c.TXT"))
	require.NoError(t, err)
	require.Equal(t, []passage{{"c.TXT#1", "one"}, {"c.TXT#2", "two"}, {"c.TXT#3", "three"}}, one)

	_, err = readPassages(t.Context(), filepath.Join(dir, "empty.md"))
	require.ErrorContains(t, err, "empty.md has no text")
	_, err = readPassages(t.Context(), writeFiles(t, map[string]string{"a.go": "package a\n"}))
	require.ErrorContains(t, err, "-in: no text in the .md, .markdown, .txt, .text files below ")
}

func TestReadJSONLines(t *testing.T) {
	long := strings.Repeat("long ", 100_000)
	dir := writeFiles(t, map[string]string{
		"a.jsonl": `{"id":"1","text":"one"}` + "\n\n  \r\n" + `{"text":"zwei ü","more":[1],"id":"2"}` + "\r\n" +
			`{"id":"3","text":"` + long + `"}`,
	})
	passages, err := readPassages(t.Context(), filepath.Join(dir, "a.jsonl"))
	require.NoError(t, err)
	require.Equal(t, []passage{{"1", "one"}, {"2", "zwei ü"}, {"3", long}}, passages)
}

func TestIDsMayBeNumbers(t *testing.T) {
	for _, id := range []string{"7", "-1", "0", "1.50", "1e3", "123456789012345678901234567890"} {
		p, err := parseLine([]byte(`{"id": ` + id + ` ,"text":"a"}`))
		require.NoError(t, err)
		require.Equal(t, passage{id, "a"}, p)
	}
}

func TestByteOrderMarkIsNoText(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"a.jsonl": byteOrderMark + `{"id":"1","text":"one"}` + "\n",
		"b.md":    byteOrderMark + "# Title\n",
	})
	passages, err := readPassages(t.Context(), filepath.Join(dir, "a.jsonl"))
	require.NoError(t, err)
	require.Equal(t, []passage{{"1", "one"}}, passages)
	passages, err = readPassages(t.Context(), filepath.Join(dir, "b.md"))
	require.NoError(t, err)
	require.Equal(t, []passage{{"b.md#1", "# Title"}}, passages)
}

func TestBadJSONLinesAreNamed(t *testing.T) {
	good := `{"id":"1","text":"secret text"}` + "\n"
	for name, test := range map[string]struct{ content, want string }{
		"no JSON":       {good + "\n" + "secret text\n", "x.jsonl:3: "},
		"cut off":       {good + `{"id":"2","te`, "x.jsonl:2: "},
		"two in a line": {good + `{"id":"2","text":"a"} {}`, "x.jsonl:2: "},
		"a list":        {`["a","b"]`, `x.jsonl:1: want {"id": "...", "text": "..."}: the line is a JSON array, not an object`},
		"null":          {good + "null\n", `x.jsonl:2: want {"id": "...", "text": "..."}: "id" is missing`},
		"no id":         {`{"text":"a"}`, `x.jsonl:1: want {"id": "...", "text": "..."}: "id" is missing`},
		"no text":       {good + good + `{"id":"a"}`, `x.jsonl:3: want {"id": "...", "text": "..."}: "text" is missing`},
		"id a list":     {`{"id":[7],"text":"a"}`, `x.jsonl:1: want {"id": "...", "text": "..."}: "id" has to be a string or a number`},
		"id null":       {`{"id":null,"text":"a"}`, `"id" has to be a string or a number`},
		"text a list":   {`{"id":"7","text":["a"]}`, `x.jsonl:1: want {"id": "...", "text": "..."}: "text" has to be a string`},
		"text a number": {`{"id":"7","text":7}`, `"text" has to be a string`},
		"text null":     {`{"id":"7","text":null}`, `"text" has to be a string`},
		"empty file":    {"\n", "x.jsonl has no text"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeFiles(t, map[string]string{"x.jsonl": test.content})
			_, err := readPassages(t.Context(), filepath.Join(dir, "x.jsonl"))
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "-in: ")
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestInIsSomethingElse(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.pdf": "x"})
	_, err := readPassages(t.Context(), filepath.Join(dir, "a.pdf"))
	require.ErrorContains(t, err, "a.pdf is no directory; a file has to be named .md, .markdown, .txt, .text, .jsonl, .ndjson")
	_, err = readPassages(t.Context(), filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "-in: ")
}
