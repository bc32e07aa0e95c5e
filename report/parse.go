// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/nearest"
)

// choose returns the choice called s, and false if there is none. The empty text is the first choice.
func choose[T ~string](s string, choices ...T) (T, bool) {
	if s == "" {
		return choices[0], true
	}
	return T(s), slices.Contains(choices, T(s))
}

// ParseRoute returns the route with the name s. An empty name means RouteAuto.
func ParseRoute(s string) (Route, error) {
	if r, ok := choose(s, RouteAuto, RouteBuffered, RouteDirect, RouteCuFile); ok {
		return r, nil
	}
	return "", errs.New(errs.Invalid, "choose route", strconv.Quote(s),
		"is not a route; expected auto, buffered, direct or cufile"+
			nearest.Hint(s, string(RouteAuto), string(RouteBuffered), string(RouteDirect), string(RouteCuFile)))
}

// ParseCachePolicy returns the cache policy with the name s. An empty name means CacheAuto.
func ParseCachePolicy(s string) (CachePolicy, error) {
	if c, ok := choose(s, CacheAuto, CacheKeep, CacheBypass); ok {
		return c, nil
	}
	return "", errs.New(errs.Invalid, "choose cache policy", strconv.Quote(s),
		"is not a cache policy; expected auto, keep or bypass"+
			nearest.Hint(s, string(CacheAuto), string(CacheKeep), string(CacheBypass)))
}

// ParseCuFileAPI returns the interface of libcufile with the name s. An empty name means CuFileSync.
func ParseCuFileAPI(s string) (CuFileAPI, error) {
	if a, ok := choose(s, CuFileSync, CuFileAsync, CuFileBatch); ok {
		return a, nil
	}
	return "", errs.New(errs.Invalid, "configure engine", "cufile="+strconv.Quote(s),
		"is not an interface of cuFile; expected sync, async or batch")
}
