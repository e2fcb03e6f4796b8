;; Is for no kind.
;; want: manifest: kinds
(module
  (memory (export "memory") 1)
  (data (i32.const 1024) "{\22name\22:\22x\22,\22hooks\22:[\22outgoing\22]}")
  (func (export "refract_abi_version") (result i32) (i32.const 1))
  (func (export "refract_manifest") (result i64) (i64.const 4398046511137))
  (func (export "outgoing") (result i32) (i32.const 0))
  )
