// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"testing"
)

func TestUnknownVariablesAreNamed(t *testing.T) {
	got := Unknown([]string{
		"NEBULAIO_ADRESS=:9000", "NEBULAIO_ADDRESS=:9000", "NEBULAIO_ROOT_PASWORD=x", "NEBULAIO_ROOT_PASSWORD_FILE=/f",
		"NEBULAIO_CONFIG=/c",
		"NEBULAIO_LIBRARY=/l", "NEBULAIO_WHATEVER_ELSE_THERE_IS=1", "HOME=/root", "NEBULAIO_CRASH_SEED=1", "nebulaio_data=1",
		"NEBULAIO_SERVICE_HOST=10.0.0.1", "NEBULAIO_SERVICE_PORT=9000", "NEBULAIO_SERVICE_PORT_S3=9000",
		"NEBULAIO_PORT=tcp://10.0.0.1:9000",
		"NEBULAIO_PORT_9000_TCP=tcp://10.0.0.1:9000", "NEBULAIO_PORT_9000_TCP_ADDR=10.0.0.1",
		"NEBULAIO_CONSOLE_SERVICE_HOST=10.0.0.2",
	}, []string{"NEBULAIO_LIBRARY", "NEBULAIO_CRASH_*"})
	want := []string{
		"the environment variable NEBULAIO_ADRESS is unknown and has no effect (did you mean NEBULAIO_ADDRESS?)",
		"the environment variable NEBULAIO_ROOT_PASWORD is unknown and has no effect (did you mean NEBULAIO_ROOT_PASSWORD?)",
		"the environment variable NEBULAIO_WHATEVER_ELSE_THERE_IS is unknown and has no effect",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
}
