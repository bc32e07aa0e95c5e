// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sentence is one sentence, with its file and line.
type sentence struct {
	file  string
	line  int
	kind  string // what the sentence belongs to: "page", "help", "metric", or an exported name
	text  string
	fault string // the rule that the sentence breaks; set by hardOnly
}

// collect returns the sentences of every page and every Go file below root that is part of the product.
func collect(root string) ([]sentence, error) {
	var all []sentence
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "build" || name == "benchmarks") {
				return filepath.SkipDir
			}
			return nil
		}
		shown, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case strings.HasSuffix(name, ".md") && name != "CHANGELOG.md":
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all = append(all, ofPage(shown, string(raw))...)
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			found, err := ofGo(path, shown)
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
		return nil
	})
	return all, err
}

// ofPage returns the sentences of a Markdown page. Code blocks, headings and the cells of short tables are left out.
func ofPage(file, text string) []sentence {
	var all []sentence
	var paragraph []string
	begin, code := 0, false
	flush := func() {
		all = append(all, split(file, begin, "page", strings.Join(paragraph, " "))...)
		paragraph = nil
	}
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			flush()
			code = !code
		case code, trimmed == "", strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "<!--"):
			flush()
		case strings.HasPrefix(trimmed, "|"):
			flush()
			for _, cell := range strings.Split(strings.Trim(trimmed, "|"), " | ") {
				all = append(all, split(file, i+1, "page", strings.TrimSpace(cell))...)
			}
		default:
			item := strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "* ")
			if item {
				flush()
				trimmed = trimmed[2:]
			}
			if len(paragraph) == 0 {
				begin = i + 1
			}
			paragraph = append(paragraph, trimmed)
		}
	}
	flush()
	return all
}

// ofGo returns the sentences of the exported comments, the help texts and the metrics' HELP of a Go file.
func ofGo(path, shown string) ([]sentence, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var all []sentence
	add := func(kind string, doc *ast.CommentGroup) {
		if doc != nil {
			all = append(all, split(shown, files.Position(doc.Pos()).Line, kind, prose(doc.Text()))...)
		}
	}
	add("package "+parsed.Name.Name, parsed.Doc)
	for _, d := range parsed.Decls {
		switch decl := d.(type) {
		case *ast.FuncDecl:
			if decl.Name.IsExported() {
				add(decl.Name.Name, decl.Doc)
			}
		case *ast.GenDecl:
			addSpecs(decl, add)
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		literals(n, func(kind string, at token.Pos, text string) {
			all = append(all, split(shown, files.Position(at).Line, kind, prose(text))...)
		})
		return true
	})
	return all, nil
}

// addSpecs adds the comments of exported types, constants, variables, fields and interface methods.
func addSpecs(decl *ast.GenDecl, add func(string, *ast.CommentGroup)) {
	first := true // a comment above a group is that of its first exported name
	for _, spec := range decl.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if !s.Name.IsExported() {
				continue
			}
			add(s.Name.Name, decl.Doc)
			add(s.Name.Name, s.Doc)
			var fields *ast.FieldList
			switch t := s.Type.(type) {
			case *ast.StructType:
				fields = t.Fields
			case *ast.InterfaceType:
				fields = t.Methods
			}
			if fields == nil {
				continue
			}
			for _, f := range fields.List {
				if len(f.Names) > 0 && f.Names[0].IsExported() {
					add(s.Name.Name+"."+f.Names[0].Name, f.Doc)
					add(s.Name.Name+"."+f.Names[0].Name, f.Comment)
				}
			}
		case *ast.ValueSpec:
			if !s.Names[0].IsExported() {
				continue
			}
			if first {
				add(s.Names[0].Name, decl.Doc)
				first = false
			}
			add(s.Names[0].Name, s.Doc)
			add(s.Names[0].Name, s.Comment)
		}
	}
}

// literals finds the texts of flags, commands and metrics in a node.
func literals(n ast.Node, found func(kind string, at token.Pos, text string)) {
	take := func(kind string, e ast.Expr) {
		if text, ok := literal(e); ok {
			found(kind, e.Pos(), text)
		}
	}
	switch node := n.(type) {
	case *ast.KeyValueExpr:
		key, ok := node.Key.(*ast.Ident)
		if !ok {
			return
		}
		switch key.Name {
		case "Short", "Long":
			take("help", node.Value)
		case "Help":
			take("metric", node.Value)
		}
	case *ast.CallExpr:
		called, ok := node.Fun.(*ast.SelectorExpr)
		if !ok || len(node.Args) < 2 {
			return
		}
		switch name := called.Sel.Name; {
		case name == "NewDesc":
			take("metric", node.Args[1])
		case strings.HasSuffix(name, "Var") || strings.HasSuffix(name, "VarP"):
			take("help", node.Args[len(node.Args)-1])
		}
	}
}

// literal returns the value of a string constant, also of one joined with +.
func literal(e ast.Expr) (string, bool) {
	switch x := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(x.Value)
		return text, err == nil && x.Kind == token.STRING
	case *ast.BinaryExpr:
		left, okLeft := literal(x.X)
		right, okRight := literal(x.Y)
		return left + right, okLeft && okRight && x.Op == token.ADD
	}
	return "", false
}

// prose returns a comment without its indented code and its headings.
func prose(text string) string {
	var kept []string
	for _, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "# ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}
