// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/nearest"
)

// reader reads the keys of one YAML file.
type reader struct {
	c      *Config
	name   string
	fields map[string]field
	groups map[string]bool // names before the dot, such as "tls" of "tls.cert"
}

// file reads settings from YAML. It works on the parser's nodes and not on decoded values, so that every error
// names its line and no alias is expanded.
func (c *Config) file(name string, src []byte) error {
	r := &reader{c: c, name: name, fields: map[string]field{}, groups: map[string]bool{}}
	for _, f := range table() {
		r.fields[f.Name] = f
		if group, _, ok := strings.Cut(f.Name, "."); ok {
			r.groups[group] = true
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return errs.New(errs.Invalid, "read configuration", name, "is no YAML: "+strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return errs.New(errs.Invalid, "read configuration", name, "has more than one YAML document; expected one")
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil // comments alone
	}
	return r.mapping(root, "")
}

func (r *reader) fail(n *yaml.Node, format string, args ...any) *errs.Error {
	return errs.New(errs.Invalid, "read configuration", fmt.Sprintf("%s:%d", r.name, n.Line), fmt.Sprintf(format, args...))
}

// mapping reads the keys of the file (group is empty) or of one group.
func (r *reader) mapping(n *yaml.Node, group string) error {
	if n.Kind != yaml.MappingNode {
		if group == "" {
			return r.fail(n, "the file is %s; expected KEY: VALUE lines", form(n))
		}
		return r.fail(n, "%q is %s; expected its keys, indented, on the next lines", group, form(n))
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" || key.Anchor != "" || value.Anchor != "" ||
			value.Kind == yaml.AliasNode {
			return r.fail(key, "anchors, aliases and keys that are not text are not accepted; expected KEY: VALUE")
		}
		name := key.Value
		if group != "" {
			name = group + "." + name
		}
		if line, twice := seen[name]; twice {
			return r.fail(key, "%q is given twice, first on line %d", name, line)
		}
		seen[name] = key.Line
		f, known := r.fields[name]
		g, named := groupOf(name)
		switch {
		case known:
			if err := r.value(f, key, value); err != nil {
				return err
			}
		case group == "" && named:
			if err := r.named(g, value); err != nil {
				return err
			}
		case group == "" && r.groups[name]:
			if err := r.mapping(value, name); err != nil {
				return err
			}
		default:
			return r.fail(key, "unknown key %q%s", name, meant(name)).WithFix("see: nebulaio config")
		}
	}
	return nil
}

func (r *reader) value(f field, key, n *yaml.Node) error {
	if f.EnvOnly {
		return r.fail(key, "%q is not accepted in a file, which others may read", f.Name).WithFix("set " + f.Env() + " or " +
			f.Env() + "_FILE")
	}
	if before, given := r.c.sources[f.Name]; given {
		return r.fail(key, "%q is given twice, first at %s", f.Name, before.Where)
	}
	var complaint, shown string
	switch {
	case f.Type == List && n.Kind == yaml.SequenceNode:
		var items []string
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode || item.Anchor != "" || item.Tag == "!!null" {
				return r.fail(item, "%q has an item that is %s; expected text", f.Name, form(item))
			}
			items = append(items, item.Value)
		}
		complaint = f.setList(r.c, items)
	case f.Type == Map && n.Kind == yaml.MappingNode:
		m := map[string]string{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, value := n.Content[i], n.Content[i+1]
			if name.Kind != yaml.ScalarNode || value.Kind != yaml.ScalarNode || name.Tag == "!!merge" || name.Anchor != "" ||
				value.Anchor != "" || value.Tag == "!!null" {
				return r.fail(name, "%q has an item that is not NAME: VALUE", f.Name)
			}
			if _, twice := m[name.Value]; twice {
				return r.fail(name, "%q names %q twice", f.Name, name.Value)
			}
			m[name.Value] = value.Value
		}
		complaint = f.setMap(r.c, m)
	case n.Kind == yaml.ScalarNode && accepts(f.Type, n.Tag):
		shown = fmt.Sprintf("%q ", n.Value)
		complaint = f.set(r.c, n.Value)
	default:
		return r.fail(n, "%q is %s; expected %s", f.Name, form(n), expected(f.Key))
	}
	if complaint != "" {
		return r.fail(n, "%s %s%s", f.Name, shown, complaint)
	}
	r.c.sources[f.Name] = Source{FromFile, fmt.Sprintf("%s:%d", r.name, key.Line)}
	return nil
}

// accepts reports whether a type accepts a YAML scalar with the given tag. A number in place of text, or text in
// place of a number, is usually a mistake.
func accepts(t Type, tag string) bool {
	switch t {
	case Bool:
		return tag == "!!bool"
	case Number:
		return tag == "!!int"
	case Size:
		return tag == "!!int" || tag == "!!str"
	case Duration:
		return tag == "!!str" || tag == "!!int"
	case Text, Choice, List, Map:
		return tag == "!!str"
	}
	return false
}

func expected(k Key) string {
	switch k.Type {
	case Bool:
		return "true or false"
	case Number:
		return fmt.Sprintf("a whole number from %d to %d", k.Min, k.Max)
	case Size:
		return "a size such as 4194304 or 4MiB"
	case Duration:
		return "a duration such as 500ms, 30s or 5m"
	case Choice:
		return oneOf(k.Choices)
	case List:
		return "a list of texts"
	case Map:
		return "NAME: VALUE lines, indented"
	}
	return "text (in quotes where it looks like something else)"
}

// form describes a YAML node in words, with the first 64 bytes of its value.
func form(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a group of keys"
	case yaml.AliasNode:
		return "an alias"
	case yaml.ScalarNode:
		value := n.Value
		if len(value) > 64 {
			value = value[:64] + "…"
		}
		switch n.Tag {
		case "!!null":
			return "empty"
		case "!!int", "!!float":
			return fmt.Sprintf("the number %s", value)
		case "!!bool":
			return fmt.Sprintf("the truth value %s", value)
		case "!!str":
			return fmt.Sprintf("the text %q", value)
		}
		return fmt.Sprintf("%q", value)
	}
	return "nothing that is known"
}

// meant returns a hint at the known key that is most similar to an unknown key, or "" if none is similar. meant
// also recognizes a key without its group, and a key with additional letters at its end.
func meant(name string) string {
	if hint, ok := meantOfGroup(name); ok {
		return hint
	}
	var full, last []string
	for _, k := range Keys() {
		_, short, grouped := strings.Cut(k.Name, ".")
		if !grouped {
			short = k.Name
		}
		if short == name || strings.HasPrefix(name, k.Name) {
			return " (did you mean " + k.Name + "?)"
		}
		full, last = append(full, k.Name), append(last, short)
	}
	if hint := nearest.Hint(name, full...); hint != "" {
		return hint
	}
	if i := slices.Index(last, nearest.Of(name, last)); i >= 0 {
		return " (did you mean " + full[i] + "?)"
	}
	return ""
}
