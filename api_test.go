// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/test/effort"
)

// module is the path of this module.
const module = "github.com/nebulaio/nebulaio"

// publicPackages are the packages that programs may import.
var publicPackages = []string{module, module + "/report", module + "/fault"}

// TestExportedAPIHasNoInternalType walks everything that a program can reach from an exported name of a public package.
func TestExportedAPIHasNoInternalType(t *testing.T) {
	effort.SingleThreaded(t)
	imports := exportData(t)
	for _, path := range publicPackages {
		p, err := imports.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, leak := range leaks(p) {
			t.Error(leak)
		}
	}
}

// TestLeaksAreFound plants each way in which an exported name can expose an internal type.
func TestLeaksAreFound(t *testing.T) {
	imports := exportData(t)
	const head = `package planted
import (
	"` + module + `/internal/device"
	"` + module + `/internal/errs"
)
var _ device.Ptr
var _ errs.Kind
`
	for _, c := range []struct{ source, want string }{
		{"type A = device.Info", "A: device.Info"},
		{"type A = errs.Error", ""}, // an alias of a public type
		{"type A []device.Info", "A: device.Info"},
		{"type A struct{ P device.Ptr }", "A.P: device.Ptr"},
		{"type A struct{ device.Info }", "A.Info: device.Info"},
		{"type A struct{ p device.Ptr }", ""},
		{"type hidden struct{ P device.Ptr }\ntype A struct{ hidden }", "hidden.P: device.Ptr"},
		{"type hidden struct{ P device.Ptr }\nfunc F() *hidden { return nil }", "F.hidden.P: device.Ptr"},
		{"type A struct{}\nfunc (A) M(device.Device) {}", "A.M: device.Device"},
		{"type A struct{}\nfunc (*A) M() (x map[string][]device.Ptr) { return nil }", "A.M: device.Ptr"},
		{"type A struct{}\nfunc (A) m(device.Device) {}", ""},
		{"type A interface{ M(chan device.Ptr) }", "A.M: device.Ptr"},
		{"func F(func(...device.Ptr)) {}", "F: device.Ptr"},
		{"func F[T device.Device](T) {}", "F: device.Device"},
		{"var V device.Mode", "V: device.Mode"},
		{"const C = device.Off", "C: device.Mode"},
		{"func f(device.Ptr) {}", ""},
	} {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "planted.go", head+c.source, 0)
		if err != nil {
			t.Fatal(err)
		}
		conf := types.Config{Importer: imports}
		p, err := conf.Check(module+"/planted", fset, []*ast.File{file}, nil)
		if err != nil {
			t.Fatal(err)
		}
		found := strings.Join(leaks(p), "; ")
		if c.want == "" && found != "" || c.want != "" && !strings.Contains(found, c.want) {
			t.Errorf("%s\nfound %q, expected %q", c.source, found, c.want)
		}
	}
}

// exportData imports packages from the export data of the build cache.
func exportData(t *testing.T) types.Importer {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", ".", "./internal/device",
		"./internal/errs").Output()
	if err != nil {
		t.Fatalf("go list -export: %v", err)
	}
	files := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

// leaks lists the internal types that exported names of a package expose.
func leaks(p *types.Package) []string {
	w := &apiWalk{home: p, seen: map[types.Type]bool{}}
	for _, name := range p.Scope().Names() {
		if o := p.Scope().Lookup(name); o.Exported() {
			w.object(name, o)
		}
	}
	slices.Sort(w.found)
	return w.found
}

// apiWalk goes through types as a caller sees them.
type apiWalk struct {
	home  *types.Package
	seen  map[types.Type]bool
	found []string
}

func (w *apiWalk) object(at string, o types.Object) {
	if tn, ok := o.(*types.TypeName); ok && !tn.IsAlias() {
		w.declared(at, tn.Type().(*types.Named))
		return
	}
	w.typ(at, o.Type())
}

// declared goes through the declaration of a type of the package: its form and its exported methods.
func (w *apiWalk) declared(at string, n *types.Named) {
	if w.seen[n] {
		return
	}
	w.seen[n] = true
	w.typ(at, n.Underlying())
	for m := range n.Methods() {
		if m.Exported() {
			w.typ(at+"."+m.Name(), m.Type())
		}
	}
}

func (w *apiWalk) typ(at string, t types.Type) {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		w.named(at, t)
	case *types.Pointer:
		w.typ(at, t.Elem())
	case *types.Slice:
		w.typ(at, t.Elem())
	case *types.Array:
		w.typ(at, t.Elem())
	case *types.Chan:
		w.typ(at, t.Elem())
	case *types.Map:
		w.typ(at, t.Key())
		w.typ(at, t.Elem())
	case *types.Signature:
		for v := range t.TypeParams().TypeParams() {
			w.typ(at, v.Constraint())
		}
		for v := range t.Params().Variables() {
			w.typ(at, v.Type())
		}
		for v := range t.Results().Variables() {
			w.typ(at, v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() { // an embedded type shows its exported fields and methods
				w.typ(at+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			if m.Exported() {
				w.typ(at+"."+m.Name(), m.Type())
			}
		}
		for e := range t.EmbeddedTypes() {
			w.typ(at, e)
		}
	case *types.Union:
		for term := range t.Terms() {
			w.typ(at, term.Type())
		}
	}
}

func (w *apiWalk) named(at string, n *types.Named) {
	for a := range n.TypeArgs().Types() {
		w.typ(at, a)
	}
	o := n.Obj()
	switch {
	case o.Pkg() == nil, !strings.HasPrefix(o.Pkg().Path(), module): // of the universe, or of another module
	case o.Pkg() == w.home:
		if !o.Exported() { // its fields and methods can be reached, its name cannot
			w.declared(at+"."+o.Name(), n)
		}
	case !slices.Contains(publicPackages, o.Pkg().Path()):
		w.found = append(w.found, fmt.Sprintf("%s: %s.%s of %s is internal", at, o.Pkg().Name(), o.Name(), o.Pkg().Path()))
	}
}

// TestEveryExportedNameHasAComment checks the public packages.
func TestEveryExportedNameHasAComment(t *testing.T) {
	for _, dir := range []string{".", "report", "fault"} {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				for _, n := range uncommented(d) {
					t.Errorf("%s: %s has no comment", name, n)
				}
			}
		}
	}
}

// uncommented lists exported names of a declaration that nothing describes. The comment of a group describes its
// constants.
func uncommented(d ast.Decl) []string {
	var out []string
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && (d.Recv == nil || receiverIsExported(d.Recv)) {
			out = append(out, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && s.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
					out = append(out, s.Name.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() && s.Doc == nil && d.Doc == nil {
						out = append(out, n.Name)
					}
				}
			}
		}
	}
	return out
}

func receiverIsExported(r *ast.FieldList) bool {
	t := r.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	n, ok := t.(*ast.Ident)
	return ok && n.IsExported()
}
