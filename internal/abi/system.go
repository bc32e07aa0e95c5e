// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"fmt"
	"reflect"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/tuning"
)

// systemOptions reads the options of nebulaio_system_open. Package tuning lists their keys.
func systemOptions(text string) (nebulaio.Options, error) {
	var out nebulaio.Options
	to := reflect.ValueOf(&out).Elem()
	var fields []reflect.StructField
	for _, o := range tuning.Options() {
		field := to.FieldByName(o.Field)
		form := field.Type()
		if o.Kind == tuning.Switch {
			form = reflect.TypeFor[*bool]()
		}
		fields = append(fields, reflect.StructField{Name: o.Field, Type: form,
			Tag: reflect.StructTag(fmt.Sprintf("json:%q", o.Key))})
	}
	given := reflect.New(reflect.StructOf(fields))
	if err := decode(text, given.Interface()); err != nil {
		return nebulaio.Options{}, err
	}
	for _, o := range tuning.Options() {
		value := given.Elem().FieldByName(o.Field)
		if on, ok := value.Interface().(*bool); ok {
			value = reflect.ValueOf(no(on))
		}
		to.FieldByName(o.Field).Set(value)
	}
	return out, nil
}
