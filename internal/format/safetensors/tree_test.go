// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// keys are a bucket's, with their content.
type keys map[string]string

func (k keys) Open(context.Context, string) (*vfs.File, error) {
	return nil, errs.New(errs.Unsupported, "open", "", "not here")
}

func (k keys) Names(_ context.Context, dir string) (out []string, _ error) {
	if dir != "" && !strings.HasSuffix(dir, "/") {
		dir += "/"
	}
	for name := range k {
		if rest, ok := strings.CutPrefix(name, dir); ok && rest != "" && !strings.Contains(rest, "/") {
			out = append(out, rest)
		}
	}
	return out, nil
}

func (k keys) ReadAll(_ context.Context, name string, _ int64) ([]byte, error) {
	text, ok := k[name]
	if !ok {
		return nil, errs.New(errs.NotFound, "read", name, "is not there")
	}
	return []byte(text), nil
}

// Keys are no paths: one with two slashes or a ".." in it is itself alone.
func TestKeysAreTakenAsTheyStand(t *testing.T) {
	const index = `{"metadata":{},"weight_map":{"w":"x-00001-of-00001.safetensors"}}`
	for _, dir := range []string{"", "a/", "a//b/", "a/../b/", "./a/", "/", "//", "a/./", " /%2F/"} {
		k := keys{dir + IndexFile: index, dir + "x-00001-of-00001.safetensors": "", "b/" + ModelFile: "another one's"}
		for _, name := range []string{dir, strings.TrimSuffix(dir, "/"), dir + IndexFile} {
			if name == "" && dir != "" || strings.Trim(dir, "/") == "" && name != dir && name != dir+IndexFile {
				continue // the bucket's root is another place
			}
			got, ix, err := ResolveIn(t.Context(), k, name, func(s string) string { return "s3://box/" + s })
			if err != nil || ix == nil || !slices.Equal(got, []string{dir + "x-00001-of-00001.safetensors"}) {
				t.Errorf("%q: %q, %v", name, got, err)
			}
		}
	}
}
