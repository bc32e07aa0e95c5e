// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// policyText is the body of a request with a policy.
type policyText struct {
	Policy string `json:"policy"`
}

// policyProblem is one fault of a policy. Line and Column begin at 1, and are 0 if they are not known.
type policyProblem struct {
	Message string `json:"message"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
}

// setPolicy answers PUT buckets/{bucket}/policy.
func (c bucketPage) setPolicy() (any, error) {
	var in policyText
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if in.Policy == "" || len(in.Policy) > maxPolicy {
		return nil, invalid("the policy is empty or longer than 64 KiB", "remove a policy with DELETE")
	}
	_, err := c.s3(http.MethodPut, "", url.Values{"policy": {""}}, []byte(in.Policy), nil)
	return nil, err
}

// removePolicy answers DELETE buckets/{bucket}/policy.
func (c bucketPage) removePolicy() (any, error) {
	_, err := c.s3(http.MethodDelete, "", url.Values{"policy": {""}}, nil, nil)
	return nil, err
}

// validatePolicy answers POST buckets/{bucket}/policy/validate. It changes nothing, and tells nothing about the bucket.
func (c bucketPage) validatePolicy() (any, error) {
	var in policyText
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if err := bucketName(c.name()); err != nil {
		return nil, err
	}
	out := struct {
		Valid    bool            `json:"valid"`
		Problems []policyProblem `json:"problems"`
	}{Problems: checkPolicy([]byte(in.Policy), c.name(), c.CheckPolicy)}
	out.Valid = len(out.Problems) == 0
	return out, nil
}

// checkPolicy returns the faults of a policy: first those of its JSON, with their place.
func checkPolicy(text []byte, bucket string, check func([]byte, string) error) []policyProblem {
	if len(text) > maxPolicy {
		return []policyProblem{{Message: "the policy is longer than 64 KiB"}}
	}
	var any json.RawMessage
	err := json.Unmarshal(text, &any)
	var bad *json.SyntaxError
	if errors.As(err, &bad) {
		line, column := place(text, bad.Offset)
		return []policyProblem{{Message: "the policy is no JSON: " + bad.Error(), Line: line, Column: column}}
	}
	if err != nil {
		return []policyProblem{{Message: "the policy is no JSON: " + err.Error()}}
	}
	if err := check(text, bucket); err != nil {
		return []policyProblem{{Message: errs.MessageOf(err)}}
	}
	return []policyProblem{}
}

// place returns the line and the column of the byte before an offset.
func place(text []byte, offset int64) (line, column int) {
	before := text[:min(max(offset-1, 0), int64(len(text)))]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + len([]rune(string(before[1+bytes.LastIndexByte(before, '\n'):])))
}
