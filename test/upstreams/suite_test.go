// SPDX-License-Identifier: Apache-2.0

package upstreams_test

const suiteEnv = "NEBULAIO_UPSTREAMS_SUITE"

func playSuite(string) {}
