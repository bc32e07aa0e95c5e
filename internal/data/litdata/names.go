// SPDX-License-Identifier: Apache-2.0

package litdata

import (
	"encoding/json"
	"slices"
	"strconv"
)

// mostName is the most bytes of the path to a leaf.
const mostName = 4096

// node is a node of the tree in data_spec. A leaf has no type.
type node struct {
	Type     *string         `json:"type"`
	Context  json.RawMessage `json:"context"`
	Children []node          `json:"children_spec"`
}

// leafNames returns a different name for each of n leaves. The parameter spec is data_spec, a string with the JSON text
// [1, tree]. The names do not place any byte, so a tree of another version of litData is no error.
func leafNames(spec json.RawMessage, n int) []string {
	positions := make([]string, n)
	for i := range positions {
		positions[i] = strconv.Itoa(i)
	}
	var text string
	if json.Unmarshal(spec, &text) != nil {
		return positions
	}
	var pair []json.RawMessage
	var root node
	if json.Unmarshal([]byte(text), &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[1], &root) != nil ||
		root.Type == nil {
		return positions
	}
	names, ok := root.names(nil, "", n)
	if !ok || len(names) != n {
		return positions
	}
	seen := make(map[string]struct{}, n)
	for _, name := range names {
		seen[name] = struct{}{}
	}
	if len(seen) != n || slices.Contains(names, "") {
		return positions
	}
	return names
}

// names appends the paths of all leaves below a node. It returns false for more than `most` leaves and for a path that
// is too long.
func (t *node) names(to []string, path string, most int) ([]string, bool) {
	if t.Type == nil {
		return append(to, path), len(to) < most && len(path) <= mostName
	}
	keys := t.keys()
	for i := range t.Children {
		below := strconv.Itoa(i)
		if keys != nil {
			below = keys[i]
		}
		if path != "" {
			below = path + "." + below
		}
		if len(below) > mostName {
			return nil, false
		}
		var ok bool
		if to, ok = t.Children[i].names(to, below, most); !ok {
			return nil, false
		}
	}
	return to, true
}

// keys returns the keys of a dictionary, or nil for any other node. The context of a dictionary is a string with a list
// in JSON.
func (t *node) keys() []string {
	var text string
	var list []json.RawMessage
	if json.Unmarshal(t.Context, &text) != nil || json.Unmarshal([]byte(text), &list) != nil ||
		len(list) != len(t.Children) {
		return nil
	}
	keys := make([]string, len(list))
	for i, key := range list {
		if json.Unmarshal(key, &keys[i]) != nil || string(key) == "null" {
			keys[i] = string(key) // a number, as it stands there
		}
	}
	return keys
}
