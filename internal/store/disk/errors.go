// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/object"
)

func noBucket(op, name string) error { return object.Fail(op, name, object.ErrNoSuchBucket, "") }

func noKey(op, key, msg string) error { return object.Fail(op, key, object.ErrNoSuchKey, msg) }

func checkKey(op, key string) error {
	if n := len(key); n < 1 || n > object.MaxKey {
		return object.Fail(op, key, object.ErrInvalidName,
			fmt.Sprintf("a key of %d bytes, expected 1 to %d", n, object.MaxKey))
	}
	return nil
}

func checkAttributes(op, key string, as map[string]string) error {
	n := 0
	for k, v := range as {
		n += len(k) + len(v)
	}
	if n > object.MaxAttributes {
		return object.Fail(op, key, object.ErrTooLarge, fmt.Sprintf("attributes of %d bytes, expected at most %d", n,
			object.MaxAttributes))
	}
	return nil
}
