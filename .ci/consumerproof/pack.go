// Package consumerproof shows that the published modules can be used by somebody
// who has nothing of this repository: each module is packed into a module proxy
// made of files, and scratch programs get them from there.
package consumerproof

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing/fstest"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// unpublished are the folders whose modules nobody else gets.
var unpublished = []string{".ci", "benchmarks", "examples"}

// Module is one module of the repository.
type Module struct {
	Dir       string // relative to the repository's root, with slashes; "." is the root module
	Path      string
	Published bool
	GoMod     *modfile.File
}

// Modules returns the modules that go.work in root lists.
func Modules(root string) ([]Module, error) {
	name := filepath.Join(root, "go.work")
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork(name, content, nil)
	if err != nil {
		return nil, err
	}
	var modules []Module
	for _, use := range work.Use {
		name := filepath.Join(root, use.Path, "go.mod")
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		parsed, err := modfile.Parse(name, content, nil)
		if err != nil {
			return nil, err
		}
		m := Module{Dir: path.Clean(use.Path), Path: parsed.Module.Mod.Path, GoMod: parsed, Published: true}
		for _, folder := range unpublished {
			if m.Dir == folder || strings.HasPrefix(m.Dir, folder+"/") {
				m.Published = false
			}
		}
		modules = append(modules, m)
	}
	return modules, nil
}

// Version returns the one version at which all modules require each other.
func Version(modules []Module) (string, error) {
	own := make(map[string]bool)
	for _, m := range modules {
		own[m.Path] = true
	}
	version := ""
	for _, m := range modules {
		for _, r := range m.GoMod.Require {
			if !own[r.Mod.Path] {
				continue
			}
			if version != "" && r.Mod.Version != version {
				return "", fmt.Errorf("%s requires %s, elsewhere it is %s: the modules are released together", m.Path, r.Mod, version)
			}
			version = r.Mod.Version
		}
	}
	if version == "" {
		return "", fmt.Errorf("no module of %d requires another one", len(modules))
	}
	return version, nil
}

// Pack adds m at version to the module proxy in proxyDir, as a release has it:
// without the modules nested in it and without replace lines.
func Pack(root string, m Module, version, proxyDir string) error {
	at := module.Version{Path: m.Path, Version: version}
	dir := filepath.Join(root, filepath.FromSlash(m.Dir))
	goMod, err := releasedGoMod(m)
	if err != nil {
		return err
	}
	checked, err := zip.CheckDir(dir)
	if err != nil {
		return err
	}
	disk := os.DirFS(dir)
	released := fstest.MapFS{"go.mod": {Data: goMod, Mode: 0o644}}
	var files []zip.File
	for _, name := range checked.Valid {
		relative, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		f := packedFile{disk, filepath.ToSlash(relative)}
		if f.path == "go.mod" {
			f.fsys = released
		}
		files = append(files, f)
	}

	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	versions := filepath.Join(proxyDir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": info,
		version + ".mod":  goMod,
	} {
		if err := os.WriteFile(filepath.Join(versions, name), content, 0o644); err != nil {
			return err
		}
	}
	packed, err := os.Create(filepath.Join(versions, version+".zip"))
	if err != nil {
		return err
	}
	if err := zip.Create(packed, at, files); err != nil {
		packed.Close()
		return fmt.Errorf("pack %s: %w", at, err)
	}
	return packed.Close()
}

// releasedGoMod returns m's go.mod without its replace lines, which a consumer's
// go command would pass over, and go install refuse.
func releasedGoMod(m Module) ([]byte, error) {
	before, err := m.GoMod.Format()
	if err != nil {
		return nil, err
	}
	copied, err := modfile.Parse("go.mod", before, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range m.GoMod.Replace {
		if err := copied.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return nil, err
		}
	}
	copied.Cleanup()
	return copied.Format()
}

type packedFile struct {
	fsys fs.FS
	path string
}

func (f packedFile) Path() string                 { return f.path }
func (f packedFile) Lstat() (os.FileInfo, error)  { return fs.Lstat(f.fsys, f.path) }
func (f packedFile) Open() (io.ReadCloser, error) { return f.fsys.Open(f.path) }
