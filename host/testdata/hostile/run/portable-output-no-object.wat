;; Gives an empty object instead of the one that it got.
;; want: AccessError: output
(module
  (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
  (import "extism:host/env" "store_u8" (func $store_u8 (param i64 i32)))
  (import "extism:host/env" "output_set" (func $output_set (param i64 i64)))
  (import "extism:host/env" "error_set" (func $error_set (param i64)))
  (import "extism:host/env" "var_set" (func $var_set (param i64 i64)))
  (import "extism:host/env" "http_request" (func $http_request (param i64 i64) (result i64)))
  (memory (export "memory") 1)
  (func (export "outgoing") (local $p i64) (local.set $p (call $alloc (i64.const 2))) (call $store_u8 (local.get $p) (i32.const 123)) (call $store_u8 (i64.add (local.get $p) (i64.const 1)) (i32.const 125)) (call $output_set (local.get $p) (i64.const 2))))
