;; Keeps variables without end.
;; want: LimitError OutOfFuelError: output|memory|used up
(module
  (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
  (import "extism:host/env" "store_u8" (func $store_u8 (param i64 i32)))
  (import "extism:host/env" "output_set" (func $output_set (param i64 i64)))
  (import "extism:host/env" "error_set" (func $error_set (param i64)))
  (import "extism:host/env" "var_set" (func $var_set (param i64 i64)))
  (import "extism:host/env" "http_request" (func $http_request (param i64 i64) (result i64)))
  (memory (export "memory") 1)
  (func (export "outgoing") (local $p i64) (local.set $p (call $alloc (i64.const 60000))) (loop $l (call $var_set (local.get $p) (local.get $p)) (br $l))))
