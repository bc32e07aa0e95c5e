// SPDX-License-Identifier: Apache-2.0

package open

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// mostNames is the most names that one name with braces stands for.
const mostNames = 1_000_000

// expand returns the names that a name with braces stands for, as shells and WebDataset have it: "{00..12}" counts, and
// "{a,b}" lists. A name without braces stands for itself.
func expand(name string) ([]string, error) {
	open := strings.IndexByte(name, '{')
	if open < 0 {
		return []string{name}, nil
	}
	length := strings.IndexByte(name[open:], '}')
	if length < 0 {
		return []string{name}, nil
	}
	inside, after := name[open+1:open+length], name[open+length+1:]
	if strings.Contains(inside, "{") {
		return nil, errs.New(errs.Invalid, "open data set", name, "has braces inside of braces").
			WithFix("list the names one by one")
	}
	choices, err := choicesOf(inside)
	if err != nil {
		return nil, errs.Wrap("open data set", name, err)
	}
	rest, err := expand(after)
	if err != nil {
		return nil, err
	}
	if len(choices)*len(rest) > mostNames {
		return nil, tooMany(name)
	}
	out := make([]string, 0, len(choices)*len(rest))
	for _, c := range choices {
		for _, r := range rest {
			out = append(out, name[:open]+c+r)
		}
	}
	return out, nil
}

func tooMany(name string) error {
	return errs.New(errs.Invalid, "open data set", name, fmt.Sprintf("stands for more than %d names", mostNames))
}

// choicesOf returns what the text between two braces stands for.
func choicesOf(inside string) ([]string, error) {
	from, to, ok := strings.Cut(inside, "..")
	if !ok {
		if strings.Contains(inside, ",") {
			return strings.Split(inside, ","), nil
		}
		return []string{"{" + inside + "}"}, nil // a brace of the name itself
	}
	first, err1 := strconv.ParseUint(from, 10, 32)
	last, err2 := strconv.ParseUint(to, 10, 32)
	if err1 != nil || err2 != nil || last < first {
		return nil, errs.New(errs.Invalid, "expand", "{"+inside+"}", "expected two numbers, the lower one first").
			WithFix("write for example {0000..0099}")
	}
	if last-first >= mostNames {
		return nil, tooMany("{" + inside + "}")
	}
	digits := 1
	if from[0] == '0' && len(from) > 1 || to[0] == '0' && len(to) > 1 { // as bash has it
		digits = max(len(from), len(to))
	}
	out := make([]string, 0, last-first+1)
	for i := first; i <= last; i++ {
		out = append(out, fmt.Sprintf("%0*d", digits, i))
	}
	return out, nil
}

// match takes the files whose names match a pattern.
func (w finder) match(ctx context.Context, pattern string) error {
	root := pattern[:strings.LastIndexByte(pattern[:strings.IndexAny(pattern, "*?[")], '/')+1]
	rest := pattern[len(root):]
	if _, err := path.Match(rest, ""); err != nil {
		return errs.New(errs.Invalid, "open data set", pattern, "is no pattern: "+err.Error())
	}
	folder := root
	if folder == "" {
		folder = "."
	}
	var all []Entry
	within := Within{Depth: strings.Count(rest, "/") + 1, Prefix: rest[:strings.IndexAny(rest, "*?[\\")]}
	err := w.place.List(ctx, folder, within, func(e Entry) error {
		name := strings.TrimPrefix(e.Name, root)
		if ok, _ := path.Match(rest, name); ok && !isBeside(name) {
			return add(&all, e, pattern)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errs.New(errs.NotFound, "open data set", pattern, "no file matches").
			WithFix("check the pattern; a star stands for no slash")
	}
	return w.chosen(pattern, root, all)
}
