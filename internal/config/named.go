// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/nearest"
)

// namedGroup is a group of the file that has a set of keys for each of its names, such as upstream.BUCKET.endpoint. The
// settings of a namedGroup can be given only in the file.
type namedGroup struct {
	name  string // of the group in the file
	what  string // what each name of the group names, such as "bucket"
	any   string // stands for a name in the documentation
	most  int    // largest number of names
	check func(name string) string
	add   func(c *Config, name string) // adds a name without settings
	names func(c *Config) []string     // names in order
	// fields returns the settings of one name. A field's Name is the last part of the key.
	fields func(name string) []field
}

// namedGroups returns the groups of the file that have a set of keys for each name.
func namedGroups() []namedGroup {
	return []namedGroup{
		{name: "upstream", what: "bucket", any: anyBucket, most: mostUpstreams, check: bucketName, fields: upstreamFields,
			add: func(c *Config, name string) { put(&c.Upstream, name, &Upstream{}) }, names: (*Config).Upstreams},
		{name: "oidc", what: "provider", any: "PROVIDER", most: mostProviders, check: providerName, fields: providerFields,
			add: func(c *Config, name string) { put(&c.OIDC, name, &OIDC{}) }, names: (*Config).Providers},
		{name: "replication", what: "target", any: "TARGET", most: mostTargets, check: targetName, fields: targetFields,
			add: func(c *Config, name string) { put(&c.Replication, name, &Replication{}) }, names: (*Config).Targets},
		{name: "event_target", what: "target", any: "TARGET", most: mostEventTargets, check: eventTargetName,
			fields: eventTargetFields,
			add:    func(c *Config, name string) { put(&c.EventTarget, name, &EventTarget{}) }, names: (*Config).EventTargets},
	}
}

// put adds an entry to a map, which may be nil.
func put[V any](m *map[string]V, name string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[name] = v
}

// namesOf returns the names of a map in order.
func namesOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// groupOf returns the group with the given name in the file.
func groupOf(name string) (namedGroup, bool) {
	all := namedGroups()
	i := slices.IndexFunc(all, func(g namedGroup) bool { return g.name == name })
	if i < 0 {
		return namedGroup{}, false
	}
	return all[i], true
}

// of returns the settings of one name with their whole keys.
func (g namedGroup) of(name string) []field {
	all := g.fields(name)
	for i := range all {
		all[i].Name = g.name + "." + name + "." + all[i].Name
		all[i].FileOnly = true
	}
	return all
}

// added adds a name with the default settings, and returns its settings.
func (g namedGroup) added(c *Config, name string) ([]field, error) {
	g.add(c, name)
	fields := g.of(name)
	for _, f := range fields {
		if f.Default == "" {
			continue
		}
		if why := f.set(c, f.Default); why != "" {
			return nil, errs.New(errs.Other, "read configuration", f.Name, fmt.Sprintf("the default %q %s", f.Default, why))
		}
	}
	return fields, nil
}

// NamedKeys returns the descriptions of the settings that exist once for each name, such as those of upstream buckets.
// A word in capital letters, such as BUCKET, stands for the name.
func NamedKeys() []Key {
	var all []Key
	for _, g := range namedGroups() {
		all = append(all, keysOf(g.of(g.any))...)
	}
	return all
}

// named reads one group of the configuration file, such as oidc, in which each name has settings of its own.
func (r *reader) named(g namedGroup, n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return r.fail(n, "%q is %s; expected the names of %ss, indented, each with its keys", g.name, form(n), g.what)
	}
	if len(n.Content)/2 > g.most {
		return r.fail(n, "%q has %d %ss; expected %d at most", g.name, len(n.Content)/2, g.what, g.most)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" || key.Anchor != "" || value.Anchor != "" ||
			value.Kind == yaml.AliasNode {
			return r.fail(key, "anchors, aliases and keys that are not text are not accepted; expected the name of a %s", g.what)
		}
		if why := g.check(key.Value); why != "" {
			return r.fail(key, "%q has the %s %q, which %s", g.name, g.what, key.Value, why)
		}
		if slices.Contains(g.names(r.c), key.Value) {
			return r.fail(key, "%q names the %s %q twice", g.name, g.what, key.Value)
		}
		fields, err := g.added(r.c, key.Value)
		if err != nil {
			return err
		}
		for _, f := range fields {
			r.fields[f.Name] = f
		}
		if err := r.mapping(value, g.name+"."+key.Value); err != nil {
			return err
		}
	}
	return nil
}

// meantOfGroup returns a hint at the known key of a named group that is most similar to an unknown key, or "". The
// second result tells whether the key belongs to such a group.
func meantOfGroup(key string) (string, bool) {
	group, rest, ok := strings.Cut(key, ".")
	g, found := groupOf(group)
	i := strings.LastIndexByte(rest, '.') // a name may have dots: the last part is the key
	if !ok || !found || i < 0 {
		return "", false
	}
	var known []string
	for _, f := range g.of(rest[:i]) {
		known = append(known, f.Name)
	}
	return nearest.Hint(key, known...), true
}
