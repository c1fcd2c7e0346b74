package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// passage is one text to embed, with the name it is found under.
type passage struct{ id, text string }

var (
	textFiles = []string{".md", ".markdown", ".txt", ".text"}
	jsonFiles = []string{".jsonl", ".ndjson"}
)

// byteOrderMark is what some editors on Windows begin a file with.
const byteOrderMark = "\ufeff"

// readPassages returns the passages of -in, or where that is "" the
// documentation of Go's standard library.
func readPassages(ctx context.Context, in string) ([]passage, error) {
	if in == "" {
		return goDocs(ctx)
	}
	info, err := os.Stat(in)
	if err != nil {
		return nil, fmt.Errorf("-in: %w", err)
	}
	var passages []passage
	switch {
	case info.IsDir():
		passages, err = readDir(in)
	case hasExtension(in, textFiles):
		passages, err = readText(in, filepath.Base(in))
	case hasExtension(in, jsonFiles):
		passages, err = readJSONLines(in)
	default:
		return nil, fmt.Errorf("-in: %s is no directory; a file has to be named %s", in,
			strings.Join(slices.Concat(textFiles, jsonFiles), ", "))
	}
	if err == nil && len(passages) == 0 {
		err = fmt.Errorf("%s has no text", in)
	}
	if err != nil {
		return nil, fmt.Errorf("-in: %w", err)
	}
	return passages, nil
}

func hasExtension(path string, extensions []string) bool {
	return slices.Contains(extensions, strings.ToLower(filepath.Ext(path)))
}

// readDir returns the paragraphs of all text files below dir, hidden ones left
// out.
func readDir(dir string) ([]passage, error) {
	dir, err := filepath.EvalSymlinks(dir) // WalkDir would not follow a link
	if err != nil {
		return nil, err
	}
	var passages []passage
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != dir && strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if entry.IsDir() || !hasExtension(path, textFiles) {
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		more, err := readText(path, filepath.ToSlash(name))
		passages = append(passages, more...)
		return err
	})
	if err == nil && len(passages) == 0 {
		err = fmt.Errorf("no text in the %s files below %s", strings.Join(textFiles, ", "), dir)
	}
	return passages, err
}

// readText returns the paragraphs of a text file, with ids that begin with name.
func readText(path, name string) ([]passage, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var passages []passage
	for n, text := range paragraphs(strings.TrimPrefix(string(content), byteOrderMark)) {
		passages = append(passages, passage{id: fmt.Sprintf("%s#%d", name, n+1), text: text})
	}
	return passages, nil
}

// paragraphs splits text at its blank lines.
func paragraphs(text string) []string {
	var all, lines []string
	for line := range strings.Lines(text + "\n\n") {
		line = strings.TrimRight(line, " \t\r\n")
		if line != "" {
			lines = append(lines, line)
		} else if len(lines) > 0 {
			all = append(all, strings.Join(lines, "\n"))
			lines = nil
		}
	}
	return all
}

// readJSONLines returns the passages of a file with {"id": "...", "text": "..."}
// on each line; an id may be a number. Other fields and blank lines are passed over.
func readJSONLines(path string) ([]passage, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var passages []passage
	lines := bufio.NewReader(file) // a Scanner would refuse long lines
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, err
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte(byteOrderMark))
		}
		if line := bytes.TrimSpace(line); len(line) > 0 {
			p, err := parseLine(line)
			if err != nil {
				return nil, fmt.Errorf(`%s:%d: want {"id": "...", "text": "..."}: %w`, path, number, err)
			}
			passages = append(passages, p)
		}
		if err == io.EOF {
			return passages, nil
		}
	}
}

func parseLine(line []byte) (passage, error) {
	var fields struct{ ID, Text json.RawMessage }
	if err := json.Unmarshal(line, &fields); err != nil {
		if wrongType := new(json.UnmarshalTypeError); errors.As(err, &wrongType) {
			err = fmt.Errorf("the line is a JSON %s, not an object", wrongType.Value)
		}
		return passage{}, err
	}
	switch {
	case fields.ID == nil:
		return passage{}, errors.New(`"id" is missing`)
	case fields.Text == nil:
		return passage{}, errors.New(`"text" is missing`)
	}
	var p passage
	if isNumber := strings.IndexByte("-0123456789", fields.ID[0]) >= 0; isNumber {
		p.id = string(fields.ID) // as it is spelled
	} else if !unquote(fields.ID, &p.id) {
		return passage{}, errors.New(`"id" has to be a string or a number`)
	}
	if !unquote(fields.Text, &p.text) {
		return passage{}, errors.New(`"text" has to be a string`)
	}
	return p, nil
}

// unquote sets to to the string that value is, or returns false where it is none.
func unquote(value json.RawMessage, to *string) bool {
	return value[0] == '"' && json.Unmarshal(value, to) == nil
}
