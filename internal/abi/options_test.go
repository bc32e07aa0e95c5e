// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestOptionsHaveOneSpelling(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                                     "options are an array; expected an object",
		`null`:                                   "options are null; expected an object",
		`7`:                                      "are a number",
		`"x"`:                                    "are a string",
		`{`:                                      "are not JSON",
		`{} {}`:                                  "more than one JSON value",
		`{"Client": {}}`:                         `"Client" is not a key; expected one of align, checksum, client, metadata, route, streams`,
		`{"align": 8, "align": 16}`:              `"align" is given twice`,
		`{"align": "8"}`:                         `"align" is string; expected a whole number`,
		`{"checksum": 1}`:                        `"checksum" is number; expected true or false`,
		`{"metadata": []}`:                       `"metadata" is array; expected an object`,
		`{"metadata": {"a": "1", "a": "2"}}`:     `"metadata.a" is given twice`,
		`{"streams": {"cuda:0": -1}}`:            "expected a whole number of at least 0",
		`{"client": {"secret": "hidden"}}`:       `"client.secret" is not a key; expected one of access_key`,
		`{"client": {"secret_key": ["hidden"]}}`: `"client.secret_key" is array; expected a string`,
	} {
		var o saveOptions
		err := decode(text, &o)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) || errs.FixOf(err) == "" {
			t.Errorf("%s: %v, expected %q", text, err, want)
		} else if strings.Contains(err.Error(), "abi.") || strings.Contains(err.Error(), "Go ") ||
			strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		`{"shards": [{"tensor": "*", "Dim": 0}]}`:                    `"shards[0].Dim" is not a key`,
		`{"slices": [{"tensor": "a"}, {"tensor":"b","tensor":"c"}]}`: `"slices[1].tensor" is given twice`,
	} {
		if err := decode(text, &modelOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", text, err, want)
		}
	}
	var w writeOptions
	if err := decode(` {"content_type": "a/b", "metadata": {"Any": "x", "any": "y"}, "route": "auto"} `, &w); err != nil ||
		w.ContentType != "a/b" || len(w.Metadata) != 2 {
		t.Errorf("%+v, %v", w, err)
	}
	if err := decode(`{"ranges": [null, [0, 1]], "tensor": "a"}`, &sliceOptions{}); err != nil {
		t.Error(err)
	}
}

func FuzzOptions(f *testing.F) {
	f.Add(`{"metadata": {"a": "b"}, "client": {"verify": false}, "streams": {"cuda:0": 1}}`)
	f.Add(`[null]`)
	f.Fuzz(func(t *testing.T, text string) {
		if err := decode(text, &saveOptions{}); err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
