#include "fiber.hpp"

asm(R"(
    .text
    .type cuda_cpu_switch, @function
    .globl cuda_cpu_switch
    .hidden cuda_cpu_switch
cuda_cpu_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .size cuda_cpu_switch, . - cuda_cpu_switch
)");
