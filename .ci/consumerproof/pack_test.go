package consumerproof

import (
	"archive/zip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
)

func writeFiles(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	return dir
}

func TestPackedModulesAreAsReleased(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"go.work":            "go 1.26.0\n\nuse (\n\t.\n\t./.ci/proof\n\t./store/Disk\n)\n",
		"go.mod":             "module example.com/a\n\ngo 1.26.0\n",
		"a.go":               "package a\n",
		"docs/a.md":          "a\n",
		".ci/proof/go.mod":   "module example.com/a/ci/proof\n",
		".ci/proof/proof.go": "package proof\n",
		"store/Disk/go.mod":  "module example.com/a/store/Disk\n\ngo 1.26.0\n\nrequire example.com/a v0.1.0\n\nreplace example.com/a => ../..\n",
		"store/Disk/disk.go": "package disk\n",
	})
	modules, err := Modules(root)
	require.NoError(t, err)
	require.Len(t, modules, 3)
	version, err := Version(modules)
	require.NoError(t, err)
	require.Equal(t, "v0.1.0", version)

	proxyDir := t.TempDir()
	for _, m := range modules {
		if m.Published {
			require.NoError(t, Pack(root, m, version, proxyDir))
		}
	}
	require.ElementsMatch(t, []string{
		"example.com/a@v0.1.0/go.mod", "example.com/a@v0.1.0/go.work", "example.com/a@v0.1.0/a.go", "example.com/a@v0.1.0/docs/a.md",
	}, zipNames(t, filepath.Join(proxyDir, "example.com/a/@v/v0.1.0.zip")))
	// A module proxy writes "D" as "!d".
	disk := filepath.Join(proxyDir, "example.com/a/store/!disk/@v")
	require.ElementsMatch(t, []string{
		"example.com/a/store/Disk@v0.1.0/go.mod", "example.com/a/store/Disk@v0.1.0/disk.go",
	}, zipNames(t, filepath.Join(disk, "v0.1.0.zip")))
	goMod, err := os.ReadFile(filepath.Join(disk, "v0.1.0.mod"))
	require.NoError(t, err)
	require.Equal(t, "module example.com/a/store/Disk\n\ngo 1.26.0\n\nrequire example.com/a v0.1.0\n", string(goMod))
	require.NoDirExists(t, filepath.Join(proxyDir, "example.com/a/ci"))
}

func TestModulesAgreeOnOneVersion(t *testing.T) {
	parse := func(content string) Module {
		parsed, err := modfile.Parse("go.mod", []byte(content), nil)
		require.NoError(t, err)
		return Module{Path: parsed.Module.Mod.Path, GoMod: parsed}
	}
	a := parse("module example.com/a\n\nrequire example.com/other v1.0.0\n")
	b := parse("module example.com/a/b\n\nrequire example.com/a v0.1.0\n")
	c := parse("module example.com/a/c\n\nrequire example.com/a v0.2.0\n")

	_, err := Version([]Module{a, b, c})
	require.ErrorContains(t, err, "released together")
	_, err = Version([]Module{a})
	require.ErrorContains(t, err, "no module of 1")
}

func zipNames(t *testing.T, file string) []string {
	archive, err := zip.OpenReader(file)
	require.NoError(t, err)
	defer archive.Close()
	var names []string
	for _, f := range archive.File {
		names = append(names, f.Name)
	}
	return names
}
