// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v3"
)

// mark hides keys from versitygw's router. versitygw refuses keys such as "../a", because keys are paths for some
// of its backends. Here these keys are valid. So disguise adds a zero byte to each element "." and "..", and to a
// key of only slashes, and the backend removes the zero bytes again.
const mark = "\x00"

// originalPath is the local value in which versitygw finds the signed path.
const originalPath = "original-uri-path"

// disguise replaces the key of a request by its hidden form if the router would refuse the key.
func disguise(ctx fiber.Ctx) {
	raw := ctx.Request().URI().PathOriginal()
	if bytes.IndexByte(raw, '.') < 0 && bytes.IndexByte(raw, '%') < 0 && !bytes.HasSuffix(raw, []byte("//")) {
		return
	}
	path, err := url.PathUnescape(string(raw))
	if err != nil {
		return // the router refuses the path
	}
	bucket, key, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !ok {
		return
	}
	if hidden := hide(key); hidden != key {
		if ctx.Locals(originalPath) == nil {
			ctx.Locals(originalPath, path)
		}
		ctx.Path("/" + url.PathEscape(bucket) + "/" + url.PathEscape(hidden))
	}
}

// hide adds a mark to the elements that the router would refuse, and to elements that have marks already.
func hide(key string) string {
	return remark(key, func(s string) string { return s + mark })
}

// reveal removes the marks that hide has added.
func reveal(key string) string {
	return remark(key, func(s string) string { return strings.TrimSuffix(s, mark) })
}

// remark applies change to the elements "." and ".." of a key, with or without marks. For a key of only slashes, it
// applies change to the whole key.
func remark(key string, change func(string) string) string {
	if bare := strings.TrimRight(key, mark); bare != "" && strings.Trim(bare, "/") == "" {
		return change(key)
	}
	if !strings.Contains(key, ".") {
		return key
	}
	elems := strings.Split(key, "/")
	for i, e := range elems {
		if bare := strings.TrimRight(e, mark); bare == "." || bare == ".." {
			elems[i] = change(e)
		}
	}
	return strings.Join(elems, "/")
}
